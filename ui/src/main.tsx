// The dashboard: a client of the API like any other. It has no state of its own.

import "./style.css"; // first, so that pages may say otherwise

import { type ComponentType, render } from "preact";
import { useErrorBoundary } from "preact/hooks";
import { asking, begin, session, takeKey } from "./api";
import { goLive } from "./live";
import { Access } from "./pages/access";
import { Audit } from "./pages/audit";
import { Credits } from "./pages/credits";
import { Errands } from "./pages/errands";
import { Failures } from "./pages/failures";
import { Fleet } from "./pages/fleet";
import { JobPage } from "./pages/job";
import { Jobs } from "./pages/jobs";
import { Kinds } from "./pages/kinds";
import { Overview } from "./pages/overview";
import { Playground } from "./pages/playground";
import { System } from "./pages/system";
import { Wallet } from "./pages/wallet";
import { DeliveryPage, EndpointPage, InboxPage, Webhooks } from "./pages/webhooks";
import { Empty, Page, Skeleton } from "./parts/basics";
import { Frame } from "./parts/frame";
import { offer, SignIn, SignInAgain } from "./parts/signin";
import { Link, match, place } from "./router";

/** The variable parts of its path, as the page names them. */
// biome-ignore lint/suspicious/noExplicitAny: each page has names of its own
type Found = ComponentType<any>;

/** Every page by its path. The server has the same list: see src/millpond/ui. */
const PAGES: readonly (readonly [string, Found])[] = [
  ["/", Overview],
  ["/jobs", Jobs],
  ["/jobs/{id}", JobPage],
  ["/kinds", Kinds],
  ["/kinds/{kind}", Kinds],
  ["/fleet", Fleet],
  ["/fleet/{id}", Fleet],
  ["/failures", Failures],
  ["/failures/{fingerprint}", Failures],
  ["/credits", Credits],
  ["/credits/{tenant}/{account}", Wallet],
  ["/webhooks", Webhooks],
  ["/webhooks/{id}", EndpointPage],
  ["/deliveries/{id}", DeliveryPage],
  ["/inbox", InboxPage],
  ["/playground", Playground],
  ["/playground/{kind}", Playground],
  ["/errands", Errands],
  ["/errands/{id}", Errands],
  ["/access", Access],
  ["/access/{tenant}", Access],
  ["/audit", Audit],
  ["/system", System],
];

function Nowhere() {
  return (
    <Page title="There is no such page">
      <Empty title="The address leads nowhere.">
        <Link to="/">To the overview</Link>
      </Empty>
    </Page>
  );
}

function Current() {
  const { path } = place.value;
  for (const [pattern, found] of PAGES) {
    const parts = match(pattern, path);
    if (parts) return <Guarded key={pattern + JSON.stringify(parts)} page={found} parts={parts} />;
  }
  return <Nowhere />;
}

/** A page that breaks says so in its place; the frame around it stays. */
function Guarded({ page: Shown, parts }: { page: Found; parts: Record<string, string> }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return <Shown {...parts} />;
  return (
    <Page title="This page broke">
      <div class="trouble" role="alert">
        <p>
          <strong>{String((error as Error).message ?? error)}</strong>
        </p>
        <p>That is a fault of the dashboard, and of nothing that runs.</p>
        <button type="button" onClick={reset}>
          Try again
        </button>
      </div>
    </Page>
  );
}

function App() {
  if (!session.value && asking.value === "unknown") return <Skeleton />;
  if (!session.value) return <SignIn />;
  return (
    <>
      <Frame>
        <Current key={session.value.actor} />
      </Frame>
      <SignInAgain />
    </>
  );
}

const home = document.getElementById("app");
if (home) render(<App />, home);
begin(takeKey()).then((key) => {
  goLive();
  if (key) offer(key);
});
addEventListener("hashchange", () => {
  const key = takeKey();
  if (!key) return;
  if (session.peek()) offer(key);
  else begin(key);
});
