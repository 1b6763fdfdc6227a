// The pages of the products that are served here, each in a frame. They know nothing of sessions: each asks for a key, and
// finds the one that is made for the visit in the tab's storage.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { act, asProblem, farewells, may, type Problem, session } from "../api";
import { Button, Panel, Trouble } from "../parts/basics";
import { ROOT } from "../router";
import type { BlueprintPage, NewKey } from "../wire";
import { useActor } from "./playground";

/** A key that is forgotten, because the session has ended before the page was left, is soon good for nothing. */
const LASTS = "10m";
const RENEW = 8 * 60_000;
const PATIENCE = 5_000;
/** What the key of a page must be able to do: most are used by customers, some by who runs the place. */
const SCOPES: Record<string, "client" | "operator"> = { guard: "operator" };

/** Where each page finds and keeps its key: a JSON object with `key` and `tenant`. */
function entryOf(product: BlueprintPage): string {
  return `key:${product.name}`;
}

interface Visit {
  /** The first key that was made for it; others follow while it lasts. */
  first: NewKey;
  whose: string;
  tenant: string;
  account: string;
}

export function ProductPage({ product, whose }: { product: BlueprintPage; whose: ComponentChildren }) {
  const { tenant, account } = useActor();
  const [visit, setVisit] = useState<Visit | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const scope = SCOPES[product.name] ?? "client";
  const isKnown = Boolean(tenant && (account || scope === "operator"));
  const now = `${tenant}/${account}`;

  useEffect(() => {
    if (!visit) return;
    const keys = [visit.first];
    const renew = () =>
      make(visit)
        .then((made) => keys.push(made))
        .catch((error) => setProblem(asProblem(error)));
    const timer = setInterval(renew, RENEW);
    const leave = () => {
      const entry = entryOf(product);
      const kept = JSON.parse(sessionStorage.getItem(entry) ?? "{}") as { key?: string };
      if (keys.some((each) => each.key === kept.key)) sessionStorage.removeItem(entry);
      return Promise.all(keys.slice(-2).map((each) => revoke(each.id))); // the others have expired
    };
    farewells.add(leave);
    addEventListener("pagehide", leave);
    return () => {
      clearInterval(timer);
      farewells.delete(leave);
      removeEventListener("pagehide", leave);
      leave();
    };
  }, [visit?.first.id]);

  /** Make a key and put it where the page looks for it, also while it is open. */
  const make = async (whom: Pick<Visit, "tenant" | "account">) => {
    const made = await act<NewKey>("POST", "keys", {
      scope,
      tenant: whom.tenant,
      ...(scope === "client" ? { account: whom.account } : {}),
      name: `playground: ${product.name}`,
      expires_in: LASTS,
    });
    sessionStorage.setItem(entryOf(product), JSON.stringify({ key: made.key, tenant: whom.tenant }));
    return made;
  };
  const begin = async () => {
    setProblem(null);
    try {
      setVisit({ first: await make({ tenant, account }), whose: now, tenant, account });
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <>
      <Panel title={product.title} aside={<code>{product.path}</code>}>
        {whose}
        <p class="soft playground-about">{explanation(scope)}</p>
        {visit && visit.whose !== now && (
          <p class="stale">The page below is still signed in for {visit.whose}: sign in again.</p>
        )}
        {problem && <Trouble problem={problem} />}
        <div class="acts">
          <a class="button" href={product.path} target="_blank" rel="noreferrer">
            Open by itself
          </a>
          <Button
            tone="main"
            because={
              may("admin")
                ? isKnown
                  ? undefined
                  : "Say first for which tenant and account."
                : "Only an admin may have a key made; paste one in the page below."
            }
            onClick={begin}
          >
            {visit ? "Sign in again" : "Sign in to the page"}
          </Button>
        </div>
      </Panel>
      <iframe
        key={visit?.first.id ?? "nobody"}
        class="playground-frame"
        title={`${product.title}${visit ? `, for ${visit.whose}` : ""}`}
        src={product.path}
      />
    </>
  );
}

function explanation(scope: string): string {
  if (!may("admin"))
    return `The page asks for a key of scope ${scope}. Your own key may not make one: paste one that an admin gave you.`;
  return (
    `Signing in makes a key of scope ${scope} for this tenant${scope === "client" ? " and account" : ""}. It is good for` +
    " ten minutes, renewed while this page is open, and revoked when you leave it or sign out."
  );
}

/** Give the key back, also while the page goes away: nobody waits for the answer. */
async function revoke(id: string): Promise<void> {
  if (!session.value) return;
  await fetch(`${ROOT}/api/v1/keys/${encodeURIComponent(id)}`, {
    method: "DELETE",
    headers: { "Millpond-Csrf": session.value.csrf },
    keepalive: true,
    signal: AbortSignal.timeout(PATIENCE),
  }).catch(() => null);
}
