// Signing in: with a key of an operator. Where a session has ended, the page below stays as it is.

import { useEffect, useState } from "preact/hooks";
import { asking, asProblem, hindrance, nameOf, type Problem, session, signIn } from "../api";
import { Trouble } from "./basics";
import { ask, Modal } from "./dialogs";
import { Field, readFields } from "./forms";

function Form() {
  const [problem, setProblem] = useState<Problem | null>(hindrance.value);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await signIn((readFields(event.currentTarget as HTMLFormElement)["key"] ?? "").trim());
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form onSubmit={submit}>
      <Field
        name="key"
        label="Key"
        type="password"
        required
        autofocus
        hint="A key of scope viewer, operator or admin. It is sent once and not kept; the session ends by itself."
      />
      {problem && <Trouble problem={problem} />}
      <div class="acts">
        <button type="submit" class="main" disabled={isBusy} aria-busy={isBusy}>
          Sign in
        </button>
      </div>
    </form>
  );
}

/** The first page of somebody who is not signed in; where the server is away it is no use to ask for a key. */
export function SignIn() {
  const isAway = asking.value === "away";
  useEffect(() => {
    document.title = isAway ? "Away · Millpond" : "Sign in · Millpond";
  }, [isAway]);
  return (
    <main class="sign-in">
      <h1>
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="7" />
          <path d="M7 9h8c5 0 4 14 10 14" />
        </svg>
        Millpond
      </h1>
      {isAway ? hindrance.value && <Trouble problem={hindrance.value} /> : <Asks />}
    </main>
  );
}

function Asks() {
  return (
    <>
      <Form />
      <p class="soft">
        <code>millpond keys create --scope viewer</code> makes a key that may look and not touch. In development,{" "}
        <code>millpond up</code> prints a link that signs in.
      </p>
    </>
  );
}

/** Asks for a key over a page whose session has ended: what was typed there is still there afterwards. */
export function SignInAgain() {
  if (!session.value || !asking.value) return null;
  const title = asking.value === "expired" ? "Your session has expired" : "You have been signed out";
  return (
    <Modal title={title}>
      <p class="dialog-text">Sign in again to go on. Nothing that you typed is lost.</p>
      <Form />
    </Modal>
  );
}

/** Somebody who is signed in follows a link with a key: it may be one that another has sent, to be acted for. */
export function offer(key: string): Promise<boolean> {
  const who = session.value;
  return ask({
    title: "A link wants to sign you in with another key",
    text: (
      <p>
        {who && `You are signed in as ${nameOf(who)} (${who.scope}${who.tenant ? ` of ${who.tenant}` : ""}). `}
        Whose key the link has is not known before it is used. Go on only if you have made the link yourself, or know
        who has.
      </p>
    ),
    action: "Sign in with it",
    act: () => signIn(key),
  });
}
