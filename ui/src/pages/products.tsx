// The pages of the served products, each in a frame. They do not use the dashboard's session: each needs a key, and
// finds the one that the dashboard made for this visit in the session storage of the tab.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { act, asProblem, beforeSignOut, may, type Problem, session } from "../api";
import { Button, Panel, Trouble } from "../parts/basics";
import { ROOT } from "../router";
import type { NewKey, ProductPage } from "../wire";
import { useActor } from "./playground";

/** The lifetime of a key is short, because a key cannot be revoked if the session ends before the page is left. */
const KEY_LIFETIME = "10m";
const RENEW_MS = 8 * 60_000;
const TIMEOUT_MS = 5_000;

/** The entry of the session storage with the key of a page: a JSON object with `key` and `tenant`. */
function entryOf(product: ProductPage): string {
  return `key:${product.name}`;
}

interface Visit {
  /** The first key of the visit; it is replaced while the page stays open. */
  first: NewKey;
  owner: string;
  tenant: string;
  account: string;
}

export function ProductFrame({ product, accountFields }: { product: ProductPage; accountFields: ComponentChildren }) {
  const { tenant, account } = useActor();
  const [visit, setVisit] = useState<Visit | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const { scope } = product;
  const isKnown = Boolean(tenant && (account || scope !== "client"));
  const now = `${tenant}/${account}`;

  useEffect(() => {
    if (!visit) return;
    const keys = [visit.first];
    const renew = () =>
      make(visit)
        .then((made) => keys.push(made))
        .catch((error) => setProblem(asProblem(error)));
    const timer = setInterval(renew, RENEW_MS);
    const leave = () => {
      const entry = entryOf(product);
      const kept = JSON.parse(sessionStorage.getItem(entry) ?? "{}") as { key?: string };
      if (keys.some((each) => each.key === kept.key)) sessionStorage.removeItem(entry);
      return Promise.all(keys.slice(-2).map((each) => revoke(each.id))); // the others have expired
    };
    beforeSignOut.add(leave);
    addEventListener("pagehide", leave);
    return () => {
      clearInterval(timer);
      beforeSignOut.delete(leave);
      removeEventListener("pagehide", leave);
      leave();
    };
  }, [visit?.first.id]);

  /** Make a key and store it for the page, which also picks it up while it is open. */
  const make = async (owner: Pick<Visit, "tenant" | "account">) => {
    const made = await act<NewKey>("POST", "keys", {
      scope,
      tenant: owner.tenant,
      ...(scope === "client" ? { account: owner.account } : {}),
      name: `playground: ${product.name}`,
      expires_in: KEY_LIFETIME,
    });
    sessionStorage.setItem(entryOf(product), JSON.stringify({ key: made.key, tenant: owner.tenant }));
    return made;
  };
  const signIn = async () => {
    setProblem(null);
    try {
      setVisit({ first: await make({ tenant, account }), owner: now, tenant, account });
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <>
      <Panel title={product.title} aside={<code>{product.path}</code>}>
        {accountFields}
        <p class="soft playground-about">{explanation(scope)}</p>
        {visit && visit.owner !== now && (
          <p class="stale">The page below is still signed in for {visit.owner}. Sign in again.</p>
        )}
        {problem && <Trouble problem={problem} />}
        <div class="acts">
          <a class="button" href={product.path} target="_blank" rel="noreferrer">
            Open in a new tab
          </a>
          <Button
            tone="main"
            because={
              may("admin")
                ? isKnown
                  ? undefined
                  : "Enter a tenant and an account first."
                : "Only admins can create keys. Paste an existing key in the page below."
            }
            onClick={signIn}
          >
            {visit ? "Sign in again" : "Sign in to the page"}
          </Button>
        </div>
      </Panel>
      <iframe
        key={visit?.first.id ?? "nobody"}
        class="playground-frame"
        title={`${product.title}${visit ? `, for ${visit.owner}` : ""}`}
        src={product.path}
      />
    </>
  );
}

function explanation(scope: string): string {
  if (!may("admin"))
    return `The page requires a key of scope ${scope}. Your key cannot create one; paste a key that an admin created.`;
  return (
    `Signing in creates a key of scope ${scope} for this tenant${scope === "client" ? " and account" : ""}. It is valid for` +
    " ten minutes, renewed while this page is open, and revoked when you leave the page or sign out."
  );
}

/** Revoke a key, even while the page is being closed; the answer is ignored. */
async function revoke(id: string): Promise<void> {
  if (!session.value) return;
  await fetch(`${ROOT}/api/v1/keys/${encodeURIComponent(id)}`, {
    method: "DELETE",
    headers: { "Millpond-Csrf": session.value.csrf },
    keepalive: true,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  }).catch(() => null);
}
