// The playground: a form for each kind with a price preview and live results, and the pages of the served products.

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { act, asProblem, freshKey, get, may, onUserChange, type Problem, refusal, session } from "../api";
import { useLoaded, useStream } from "../live";
import {
  Badge,
  Button,
  Copy,
  Credits,
  Empty,
  Id,
  Page,
  Panel,
  Progress,
  Show,
  StateBadge,
  Tabs,
  Trouble,
} from "../parts/basics";
import { ask } from "../parts/dialogs";
import { useDraft } from "../parts/forms";
import { hasFields, initialInput, type Schema, SchemaForm } from "../parts/inputs";
import { Json } from "../parts/json";
import { LiveText, NO_TEXT, withChunk } from "../parts/livetext";
import { Media } from "../parts/media";
import { asCurl, asPython } from "../parts/snippets";
import { Table } from "../parts/table";
import { toast } from "../parts/toasts";
import { go, Link, part, place, setQuery } from "../router";
import type {
  Accepted,
  Artifact,
  Artifacts,
  Chunk,
  Job,
  Event as JobEvent,
  KindInfo,
  Kinds,
  NewArtifact,
  Quote,
  Tenants,
  Wallets,
} from "../wire";
import { clock, credits, plain, span } from "../words";
import { ProductFrame } from "./products";
import "./playground.css";

const QUOTE_DELAY_MS = 400;
const LINES_MAX = 5_000;

export function Playground({ kind }: { kind?: string }) {
  const products = session.value?.products ?? [];
  const wanted = place.value.query.get("page");
  const product = products.find((each) => each.name === wanted);
  return (
    <Page
      title="Playground"
      tab={product?.title ?? kind ?? "Playground"}
      aside={<span class="soft">actions here create real jobs and spend credits</span>}
    >
      {products.length > 0 && (
        <Tabs
          label="Section"
          chosen={product?.name ?? "kinds"}
          onChoose={(name) => go("/playground", { ...actor(), page: name === "kinds" ? null : name })}
          tabs={[
            { name: "kinds", title: "Kinds" },
            ...products.map((each) => ({ name: each.name, title: each.title })),
          ]}
        />
      )}
      {product ? (
        <ProductFrame key={product.name} product={product} accountFields={<AccountFields />} />
      ) : kind ? (
        <OneKind key={kind} name={kind} />
      ) : (
        <Choose />
      )}
    </Page>
  );
}

// Tenant and account

const keptTenant = "playground:tenant";
const keptAccount = "playground:account";
onUserChange.add(() => {
  localStorage.removeItem(keptTenant);
  localStorage.removeItem(keptAccount);
});

/** The tenant and account to submit jobs for. The browser stores them until another user signs in. */
export function useActor(): {
  tenant: string;
  account: string;
  isTenantFixed: boolean;
  setTenant: (tenant: string) => void;
  setAccount: (account: string) => void;
} {
  const given = place.value.query;
  const fixed = session.value?.tenant ?? given.get("tenant");
  const tenant = fixed ?? given.get("for") ?? localStorage.getItem(keptTenant) ?? "";
  const account = given.get("account") ?? localStorage.getItem(keptAccount) ?? "";
  return {
    tenant,
    account,
    isTenantFixed: Boolean(fixed),
    setTenant: (next) => {
      localStorage.setItem(keptTenant, next);
      setQuery({ for: next });
    },
    setAccount: (next) => {
      localStorage.setItem(keptAccount, next);
      setQuery({ account: next });
    },
  };
}

/** The tenant and account in the URL, for links to other pages of the playground. */
function actor(): Record<string, string | null> {
  const { query } = place.value;
  return Object.fromEntries(["tenant", "for", "account"].map((name) => [name, query.get(name)]));
}

function AccountFields() {
  const { tenant, account, isTenantFixed, setTenant, setAccount } = useActor();
  const tenants = useLoaded((signal) => get<Tenants>("tenants", { limit: 200 }, signal), [], { live: false });
  const accounts = useLoaded(
    async (signal) =>
      tenant
        ? get<Wallets>(`tenants/${part(tenant)}/accounts`, { limit: 200 }, signal)
        : { data: [], next_cursor: null },
    [tenant],
    { live: false },
  );
  return (
    <div class="playground-account">
      <Suggested
        id="for-tenant"
        label="Tenant"
        value={tenant}
        isFixed={isTenantFixed}
        known={(tenants.value?.data ?? []).map((each) => [each.tenant, ""])}
        onChange={setTenant}
      />
      <Suggested
        id="for-account"
        label="Account"
        value={account}
        known={(accounts.value?.data ?? []).map((each) => [each.account, credits(each.available)])}
        onChange={setAccount}
      />
    </div>
  );
}

interface SuggestedProps {
  id: string;
  label: string;
  value: string;
  isFixed?: boolean;
  /** Suggestions, each with a short note. */
  known: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

function Suggested({ id, label, value, isFixed = false, known, onChange }: SuggestedProps) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        key={value}
        list={`${id}-known`}
        defaultValue={value}
        readOnly={isFixed}
        autocomplete="off"
        spellcheck={false}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
      <datalist id={`${id}-known`}>
        {known.map(([name, about]) => (
          <option key={name} value={name}>
            {about}
          </option>
        ))}
      </datalist>
    </div>
  );
}

// Choosing a kind

function Choose() {
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), []);
  const from = place.value.query.get("from");
  const of = place.value.query.get("of");
  useEffect(() => {
    if (!from) return;
    get<Job>(`jobs/${part(from)}`, of ? { tenant: of } : {})
      .then((job) => go(`/playground/${part(job.kind)}`, { from, of }, { replace: true }))
      .catch((error) => toast(asProblem(error).message, "bad"));
  }, [from]);
  return (
    <>
      <Products />
      <Panel title="Kinds" aside="choose a kind to open its form">
        <Show of={kinds}>
          {({ data }) => (
            <Table
              label="Kinds"
              rows={data}
              keyOf={(kind) => kind.name}
              onOpen={(kind) => go(`/playground/${part(kind.name)}`, actor())}
              empty={
                <Empty title="No kinds yet.">
                  <p>A kind is a type of job that your app declares.</p>
                  <pre class="playground-command">millpond up app.py</pre>
                </Empty>
              }
              columns={[
                {
                  name: "kind",
                  head: "Kind",
                  cell: (kind) => (
                    <Link to={`/playground/${part(kind.name)}`} query={actor()}>
                      {kind.name}
                    </Link>
                  ),
                },
                { name: "summary", head: "Description", cell: (kind) => kind.summary || "–" },
                { name: "price", head: "Price", align: "right", cell: (kind) => <Price price={kind.price} /> },
                {
                  name: "takes",
                  head: "Run time (p50)",
                  align: "right",
                  hide: "narrow",
                  cell: (kind) => span(kind.durations?.p50),
                },
              ]}
            />
          )}
        </Show>
      </Panel>
    </>
  );
}

function Products() {
  const products = session.value?.products ?? [];
  if (!products.length) return null;
  return (
    <div class="playground-cards">
      {products.map((product) => (
        <Link key={product.name} to="/playground" query={{ ...actor(), page: product.name }} class="tile main">
          <span class="tile-label">{product.path}</span>
          <strong>{product.title}</strong>
          <span class="tile-note">use the product as its users see it</span>
        </Link>
      ))}
    </div>
  );
}

function Price({ price }: { price: number | string }): ComponentChildren {
  return typeof price === "number" ? <Credits value={price} /> : price;
}

// One kind

function OneKind({ name }: { name: string }) {
  const kind = useLoaded((signal) => get<KindInfo>(`kinds/${part(name)}`, {}, signal), [name], { live: false });
  return <Show of={kind}>{(found) => <KindForm kind={found} />}</Show>;
}

type Read = { input: Record<string, unknown>; wrong: "" } | { input: null; wrong: string };

function read(text: string): Read {
  try {
    const input: unknown = JSON.parse(text || "{}");
    if (input === null || typeof input !== "object" || Array.isArray(input))
      return { input: null, wrong: "The input must be a JSON object: { … }." };
    return { input: input as Record<string, unknown>, wrong: "" };
  } catch (error) {
    return { input: null, wrong: `The input is not valid JSON: ${(error as Error).message}` };
  }
}

function written(input: unknown): string {
  return JSON.stringify(input, null, 2);
}

function KindForm({ kind }: { kind: KindInfo }) {
  const schema = kind.input_schema as Schema;
  const first = useMemo(() => written(initialInput(schema)), [kind.name]);
  const [text, keep, clear] = useDraft(`playground:${kind.name}`, first);
  const [turn, setTurn] = useState(0);
  const [problem, setProblem] = useState<Problem | null>(null);
  const { tenant, account } = useActor();
  const { input, wrong } = read(text);
  const mode = place.value.query.get("as") === "json" || !hasFields(schema) ? "json" : "form";
  const key = useRef(freshKey());
  const refill = (next: string) => {
    keep(next);
    setTurn((before) => before + 1);
  };
  useFrom(refill);
  useEffect(() => {
    key.current = freshKey(); // another input is another job, which needs another key
    setProblem(null);
  }, [text, tenant, account]);

  const submit = async () => {
    setProblem(null);
    const body = { kind: kind.name, input, account: account || null };
    try {
      const made = await act<Accepted>("POST", "jobs", body, { query: { tenant }, key: key.current });
      key.current = freshKey();
      toast(`Job ${made.id} submitted.`);
      setQuery({ job: made.id, for: tenant });
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  const because =
    refusal("operator") ?? (wrong || (tenant && account ? undefined : "Enter a tenant and an account first."));
  const errors: Record<string, string> = problem?.field ? { [problem.field]: problem.message } : {};
  const job = place.value.query.get("job");
  return (
    <div class="playground-columns">
      <Panel
        title={kind.name}
        aside={
          <>
            <Link to={`/kinds/${part(kind.name)}`}>kind details</Link>
            <Link to="/playground" query={actor()}>
              choose another kind
            </Link>
          </>
        }
      >
        {kind.summary && <p class="soft">{kind.summary}</p>}
        <AccountFields />
        <div class="playground-modes">
          {hasFields(schema) && (
            <Tabs
              label="Input format"
              chosen={mode}
              onChoose={(name) => setQuery({ as: name === "json" ? "json" : null })}
              tabs={[
                { name: "form", title: "Form" },
                { name: "json", title: "JSON" },
              ]}
            />
          )}
          <button
            type="button"
            class="small"
            disabled={text === first}
            onClick={() =>
              ask({
                title: "Restart?",
                text: "The input for this kind is cleared.",
                action: "Restart",
                act: async () => {
                  clear();
                  setTurn((before) => before + 1);
                },
              })
            }
          >
            Restart
          </button>
        </div>
        <form
          onSubmit={(event) => event.preventDefault()}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !because) submit();
          }}
        >
          {mode === "json" ? (
            <JsonInput text={text} wrong={wrong} error={errors["input"] ?? ""} onInput={refill} />
          ) : input ? (
            <SchemaForm
              root={schema}
              value={input}
              turn={turn}
              errors={errors}
              upload={may("operator") && tenant && account ? (file) => putFile(file, tenant, account) : undefined}
              onChange={(next) => keep(written(next))}
            />
          ) : (
            <p class="wrong">{wrong} Fix it as JSON to return to the form.</p>
          )}
          {problem && <Trouble problem={problem} />}
          <div class="playground-send">
            <PricePreview kind={kind} input={input} tenant={tenant} account={account} />
            <Button tone="main" because={because} onClick={submit}>
              Submit
            </Button>
          </div>
        </form>
      </Panel>
      <div>
        {job ? (
          <Result key={job} id={job} tenant={place.value.query.get("for") ?? tenant} />
        ) : (
          <Panel title="Result">
            <p class="soft">The job is shown here while it runs: its stages, log, output and cost.</p>
          </Panel>
        )}
        <Snippets kind={kind.name} input={input ?? {}} tenant={tenant} account={account} />
      </div>
    </div>
  );
}

/** With `?from=job_…`, fills in the input of that job and removes the parameter from the URL; the draft stays. */
function useFrom(fill: (text: string) => void): void {
  const from = place.value.query.get("from");
  const of = place.value.query.get("of");
  useEffect(() => {
    if (!from) return;
    get<Job>(`jobs/${part(from)}`, of ? { tenant: of } : {})
      .then((job) => {
        fill(written(job.input ?? {}));
        setQuery({ from: null, of: null, for: job.tenant, account: job.account });
        toast(`Filled in the input of ${job.id}.`);
      })
      .catch((error) => toast(asProblem(error).message, "bad"));
  }, [from]);
}

function JsonInput(props: { text: string; wrong: string; error: string; onInput: (text: string) => void }) {
  const error = props.wrong || props.error;
  return (
    <div class="field">
      <label for="input-json">Input</label>
      <textarea
        id="input-json"
        rows={14}
        spellcheck={false}
        value={props.text}
        aria-invalid={error ? true : undefined}
        aria-describedby={error ? "input-json-error" : undefined}
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
      {error && (
        <small id="input-json-error" class="wrong">
          {error}
        </small>
      )}
    </div>
  );
}

async function putFile(file: File, tenant: string, account: string): Promise<string> {
  const body = { name: file.name, content_type: file.type || "application/octet-stream", size: file.size, account };
  const made = await act<NewArtifact>("POST", "artifacts", body, { query: { tenant } });
  const { method, url, headers } = made.upload;
  const answer = await fetch(url, { method, headers, body: file, credentials: "omit" });
  if (!answer.ok) throw new Error(`The upload failed: storage returned status ${answer.status}.`);
  toast(`Uploaded ${file.name}.`);
  return made.id;
}

// The price

interface PriceProps {
  kind: KindInfo;
  input: Record<string, unknown> | null;
  tenant: string;
  account: string;
}

/** The price of the job, requested shortly after the last change. */
function PricePreview({ kind, input, tenant, account }: PriceProps) {
  const [quote, setQuote] = useState<Quote | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const body = JSON.stringify(input);
  const canAsk = may("operator") && tenant && account && input;
  const job = place.value.query.get("job"); // a submitted job changes the credits of the account
  useEffect(() => {
    if (!canAsk) {
      setQuote(null);
      return;
    }
    const control = new AbortController();
    const timer = setTimeout(() => {
      act<Quote>("POST", "quotes", { kind: kind.name, input, account }, { query: { tenant }, signal: control.signal })
        .then((found) => {
          setQuote(found);
          setProblem(null);
        })
        .catch((error) => {
          if (control.signal.aborted) return;
          setQuote(null);
          setProblem(asProblem(error));
        });
    }, QUOTE_DELAY_MS);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [kind.name, body, tenant, account, canAsk, job]);
  return (
    <div class="playground-price" role="status" aria-label="Price">
      {quote ? (
        <>
          <strong>
            <Credits value={quote.price} />
          </strong>{" "}
          <Badge tone={quote.can_pay ? "good" : "bad"}>{quote.can_pay ? "enough credits" : "not enough credits"}</Badge>{" "}
          <span class="soft">
            {account} has <Credits value={quote.available} />
          </span>
        </>
      ) : problem && canAsk ? (
        <span class="soft">
          Price not available: {problem.field && `${problem.field}: `}
          {problem.message}
        </span>
      ) : (
        <span class="soft">
          Price: <Price price={kind.price} />
        </span>
      )}
    </div>
  );
}

// The result

interface Line {
  seq: number;
  at: string;
  level: string;
  text: string;
}

function Result({ id, tenant }: { id: string; tenant: string }) {
  const job = useLoaded((signal) => get<Job>(`jobs/${part(id)}`, { tenant }, signal), [id, tenant]);
  const [lines, setLines] = useState<Line[]>([]);
  const [stages, setStages] = useState<string[]>([]);
  const [progress, setProgress] = useState(0);
  const receive = (event: JobEvent) => {
    const data = (event.data ?? {}) as Record<string, unknown>;
    if (event.type === "log")
      setLines((before) => [
        ...before.slice(1 - LINES_MAX),
        { seq: event.seq, at: event.at, level: String(data["level"] ?? "info"), text: String(data["text"] ?? "") },
      ]);
    else if (event.type === "progress") setProgress(Number(data["progress"] ?? 0));
    else {
      if (event.type === "stage") setStages((before) => [...before, String(data["stage"])]);
      job.reload();
    }
  };
  const emitted = useSignal(NO_TEXT);
  const hasText = useComputed(() => emitted.value.text !== "").value;
  const receiveChunk = (chunk: Chunk) => {
    emitted.value = withChunk(emitted.value, chunk);
  };
  useStream(id, tenant, "0", { onEvent: receive, onChunk: receiveChunk });
  return (
    <Panel title="Result" aside={<Id id={id} tenant={tenant} />}>
      <Show of={job}>
        {(found) => (
          <>
            <p class="playground-state">
              <StateBadge state={found.state} phase={found.phase} outcome={found.outcome} />
              {found.position !== null && <span class="soft">position {found.position} in the queue</span>}
              {found.captured === null ? (
                <span>
                  {found.outcome ? (
                    "free"
                  ) : (
                    <>
                      holds <Credits value={found.price} />
                    </>
                  )}
                </span>
              ) : (
                <span>
                  cost <Credits value={found.captured} />
                </span>
              )}
              <Link to={`/jobs/${part(id)}`} query={{ of: tenant }}>
                job details
              </Link>
              {!found.outcome && <CancelButton id={id} tenant={tenant} reload={job.reload} />}
            </p>
            {!found.outcome && (
              <>
                <Progress value={Math.max(progress, found.progress)} label="Progress" />
                <p class="soft">
                  {found.stage ? plain(found.stage) : found.phase === "ready" ? "waiting for a worker" : ""}
                </p>
              </>
            )}
            {stages.length > 0 && <p class="soft">Stages: {stages.map(plain).join(" → ")}</p>}
            {found.phase === "parked" && <p class="stale">The job waits for an answer. Answer it on its job page.</p>}
            {found.error && <Json value={found.error} label="error" />}
            {found.outcome && <Files id={id} tenant={tenant} />}
            {found.output !== null && (
              <>
                <h3>Output</h3>
                <Json value={found.output} label="output" />
              </>
            )}
          </>
        )}
      </Show>
      {hasText && (
        <>
          <h3>Text</h3>
          <LiveText emitted={emitted} />
        </>
      )}
      {lines.length > 0 && (
        <>
          <h3>Log</h3>
          <pre class="playground-log" tabIndex={0} role="log" aria-label="Log">
            {lines.map((line) => (
              <span key={line.seq} class={line.level === "error" || line.level === "warning" ? "wrong" : ""}>
                <span class="soft">{clock(line.at)} </span>
                {line.text}
                {"\n"}
              </span>
            ))}
          </pre>
        </>
      )}
    </Panel>
  );
}

function CancelButton({ id, tenant, reload }: { id: string; tenant: string; reload: () => void }) {
  const cancel = async () => {
    try {
      await act("POST", `jobs/${part(id)}/cancel`, undefined, { query: { tenant } });
      toast("Cancellation requested.");
    } catch (error) {
      toast(asProblem(error).message, "bad");
    }
    reload();
  };
  return (
    <Button tone="small" because={refusal("operator")} onClick={cancel}>
      Cancel
    </Button>
  );
}

function Files({ id, tenant }: { id: string; tenant: string }) {
  const files = useLoaded((signal) => get<Artifacts>(`jobs/${part(id)}/artifacts`, { tenant }, signal), [id], {
    live: false,
  });
  if (!files.value?.data.length) return null;
  return (
    <div class="media-grid">
      {files.value.data.map((file: Artifact) => (
        <Media key={file.id} file={file} />
      ))}
    </div>
  );
}

// As code

function Snippets({ kind, input, tenant, account }: Pick<Job, "kind" | "input" | "tenant" | "account">) {
  const [chosen, choose] = useState("curl");
  const text = (chosen === "curl" ? asCurl : asPython)({ kind, input, tenant, account, priority: 0 });
  return (
    <Panel title="Code" aside={<Copy text={text} what="code" label="Copy" />}>
      <Tabs
        label="Language"
        chosen={chosen}
        onChoose={choose}
        tabs={[
          { name: "curl", title: "curl" },
          { name: "python", title: "Python" },
        ]}
      />
      <pre tabIndex={0} role="group" aria-label="Code">
        {text}
      </pre>
    </Panel>
  );
}
