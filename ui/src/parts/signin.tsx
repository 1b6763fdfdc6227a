// Signing in with a key. If a session has ended, the page below the dialog stays as it is.

import { useEffect, useState } from "preact/hooks";
import { asProblem, nameOf, type Problem, session, signIn, signInProblem, signInReason } from "../api";
import { Trouble } from "./basics";
import { ask, Modal } from "./dialogs";
import { Field, readFields } from "./forms";

function Form() {
  const [problem, setProblem] = useState<Problem | null>(signInProblem.value);
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
        hint="A key of scope viewer, operator or admin. The key is sent once and not stored; the session expires automatically."
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

/** The page without a session. While the server is unreachable, it shows that instead of asking for a key. */
export function SignIn() {
  const isUnreachable = signInReason.value === "unreachable";
  useEffect(() => {
    document.title = isUnreachable ? "Server unreachable · Millpond" : "Sign in · Millpond";
  }, [isUnreachable]);
  return (
    <main class="sign-in">
      <h1>
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <rect width="32" height="32" rx="7" />
          <path d="M7 9h8c5 0 4 14 10 14" />
        </svg>
        Millpond
      </h1>
      {isUnreachable ? signInProblem.value && <Trouble problem={signInProblem.value} /> : <KeyForm />}
    </main>
  );
}

function KeyForm() {
  return (
    <>
      <Form />
      <p class="soft">
        <code>millpond keys create --scope viewer</code> creates a read-only key. In development,{" "}
        <code>millpond up</code> prints a link that signs in.
      </p>
    </>
  );
}

/** Asks for a key in a dialog over a page whose session has ended, so that input on the page is kept. */
export function SignInAgain() {
  if (!session.value || !signInReason.value) return null;
  const title = signInReason.value === "expired" ? "Your session has expired" : "You have been signed out";
  return (
    <Modal title={title}>
      <p class="dialog-text">Sign in again to continue. Your unsaved input is kept.</p>
      <Form />
    </Modal>
  );
}

/** Asks a signed-in user before using the key of a link, because somebody else may have made the link. */
export function offerKey(key: string): Promise<boolean> {
  const user = session.value;
  return ask({
    title: "Sign in with the key from this link?",
    text: (
      <p>
        {user && `You are signed in as ${nameOf(user)} (${user.scope}${user.tenant ? ` of ${user.tenant}` : ""}). `}
        The owner of the key in the link is unknown until it is used. Continue only if you created the link, or trust
        the person who did.
      </p>
    ),
    action: "Sign in",
    act: () => signIn(key),
  });
}
