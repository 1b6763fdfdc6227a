// The dashboard: a client of the API like any other. It stores nothing of its own on the server.

import "./style.css"; // first, so that the styles of pages override it

import { type ComponentType, render } from "preact";
import { useErrorBoundary } from "preact/hooks";
import { openSession, session, signInReason, takeKey } from "./api";
import { goLive } from "./live";
import { Access } from "./pages/access";
import { Audit } from "./pages/audit";
import { Batches, BatchPage } from "./pages/batches";
import { BulkOperations } from "./pages/bulk";
import { Credits } from "./pages/credits";
import { Failures } from "./pages/failures";
import { Fleet } from "./pages/fleet";
import { JobPage } from "./pages/job";
import { Jobs } from "./pages/jobs";
import { Kinds } from "./pages/kinds";
import { Overview } from "./pages/overview";
import { Playground } from "./pages/playground";
import { SchedulePage } from "./pages/schedule";
import { EditSchedule, NewSchedule } from "./pages/schedule-form";
import { Schedules } from "./pages/schedules";
import { System } from "./pages/system";
import { Wallet } from "./pages/wallet";
import { DeliveryPage, EndpointPage, InboxPage, Webhooks } from "./pages/webhooks";
import { Empty, Page, Skeleton } from "./parts/basics";
import { Frame } from "./parts/frame";
import { offerKey, SignIn, SignInAgain } from "./parts/signin";
import { Link, match, place } from "./router";

/** A page; its properties are the variable parts of its path. */
// biome-ignore lint/suspicious/noExplicitAny: the properties differ from page to page
type PageComponent = ComponentType<any>;

/** Every page by its path. The server has the same list: see src/millpond/ui. */
const PAGES: readonly (readonly [string, PageComponent])[] = [
  ["/", Overview],
  ["/jobs", Jobs],
  ["/jobs/{id}", JobPage],
  ["/batches", Batches],
  ["/batches/{id}", BatchPage],
  ["/kinds", Kinds],
  ["/kinds/{kind}", Kinds],
  ["/schedules", Schedules],
  ["/schedules/new", NewSchedule],
  ["/schedules/{id}", SchedulePage],
  ["/schedules/{id}/edit", EditSchedule],
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
  ["/bulk", BulkOperations],
  ["/bulk/{id}", BulkOperations],
  ["/access", Access],
  ["/access/{tenant}", Access],
  ["/audit", Audit],
  ["/system", System],
];

function NotFound() {
  return (
    <Page title="Page not found">
      <Empty title="No page exists at this address.">
        <Link to="/">Go to the overview</Link>
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
  return <NotFound />;
}

/** If the page throws, its error is shown in its place, and the frame around it stays. */
function Guarded({ page: Shown, parts }: { page: PageComponent; parts: Record<string, string> }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return <Shown {...parts} />;
  return (
    <Page title="This page failed">
      <div class="trouble" role="alert">
        <p>
          <strong>{String((error as Error).message ?? error)}</strong>
        </p>
        <p>This is an error in the dashboard. Jobs and workers are not affected.</p>
        <button type="button" onClick={reset}>
          Try again
        </button>
      </div>
    </Page>
  );
}

function App() {
  if (!session.value && signInReason.value === "unknown") return <Skeleton />;
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

const element = document.getElementById("app");
if (element) render(<App />, element);
openSession(takeKey()).then((key) => {
  goLive();
  if (key) offerKey(key);
});
addEventListener("hashchange", () => {
  const key = takeKey();
  if (!key) return;
  if (session.peek()) offerKey(key);
  else openSession(key);
});
