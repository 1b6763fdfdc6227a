// Live updates: one event stream per tab. It is closed while the tab is hidden, so that a dashboard in the background
// causes no load.

import { effect, signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { asProblem, get, onUserChange, type Problem, session, signInReason, streamOf } from "./api";
import { place } from "./router";
import type { Board, Chunk, Event as JobEvent } from "./wire";

export type Liveness = "live" | "paused" | "manual" | "lost" | "off";

const RETRY_MS = 3_000;
/** A stream without a frame for this long is considered lost even if it is open: a few of the server's intervals. */
const SILENCE = { intervals: 3, atLeast: 5_000 };

/** The newest board from the server. */
export const board = signal<Board | null>(null);
export const liveness = signal<Liveness>("off");
/** When the server last sent or answered something. */
export const updatedAt = signal<Date | null>(null);
/** Increases whenever pages should read their data again. */
export const refreshCount = signal(0);

let source: EventSource | null = null;
let retry: ReturnType<typeof setTimeout> | undefined;
let watch: ReturnType<typeof setInterval> | undefined;
let lastFrameAt = 0;

onUserChange.add(() => {
  board.value = null;
  updatedAt.value = null;
});

function markUpdated(): void {
  lastFrameAt = performance.now();
  updatedAt.value = new Date();
  refreshCount.value += 1;
}

function lose(): void {
  close();
  liveness.value = "lost";
  retry = setTimeout(reconnect, RETRY_MS);
}

function close(): void {
  clearTimeout(retry);
  clearInterval(watch);
  source?.close();
  source = null;
}

function open(): void {
  close();
  if (!session.value || signInReason.value) {
    liveness.value = "off";
    return;
  }
  if (session.value.refresh === 0) {
    liveness.value = "manual";
    return;
  }
  if (document.hidden) {
    liveness.value = "paused";
    return;
  }
  const tenant = place.peek().query.get("tenant");
  source = new EventSource(streamOf("board/stream", { tenant }));
  const live = () => {
    liveness.value = "live";
    markUpdated();
  };
  source.addEventListener("board", (event) => {
    board.value = JSON.parse((event as MessageEvent<string>).data) as Board;
    live();
  });
  source.addEventListener("ping", live); // the board has not changed, but other data may have
  source.addEventListener("error", lose);
  const every = session.value.refresh * 1000;
  const silence = Math.max(SILENCE.intervals * every, SILENCE.atLeast);
  lastFrameAt = performance.now();
  watch = setInterval(() => performance.now() - lastFrameAt > silence && lose(), every);
}

/** An EventSource does not report why it was refused. A read does, and asks for a key if the session has ended. */
async function reconnect(): Promise<void> {
  try {
    board.value = await get<Board>("board", { tenant: place.peek().query.get("tenant") });
    open();
    markUpdated();
  } catch {
    lose();
  }
}

/** Read everything again now. */
export async function refresh(): Promise<void> {
  board.value = await get<Board>("board", { tenant: place.peek().query.get("tenant") }).catch(() => board.value);
  markUpdated();
}

const tenant = signal<string | null>(null);
effect(() => {
  tenant.value = place.value.query.get("tenant");
});

/** Start live updates. Changes of the session, the selected tenant or the tab's visibility open a new stream. */
export function goLive(): void {
  effect(() => {
    void [session.value, signInReason.value, tenant.value];
    open();
  });
  document.addEventListener("visibilitychange", () => {
    open();
    if (!document.hidden && liveness.peek() === "manual") return;
    if (!document.hidden) refreshCount.value += 1;
  });
}

// Reading

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  /** Whether the first answer is pending. */
  isLoading: boolean;
  reload: () => void;
}

/**
 * The data of a page: read when it opens or its dependencies change, and again when `refreshCount` increases. The old
 * value stays until the new one arrives. If a later read fails, the value stays, and `problem` is set too.
 */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
  dependencies: readonly unknown[],
  { live = true }: { live?: boolean } = {},
): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; problem: Problem | null; key: string }>({
    value: null,
    problem: null,
    key: "",
  });
  const key = JSON.stringify(dependencies);
  const running = useRef<AbortController | null>(null);

  const run = useCallback(
    (isRepeat: boolean) => {
      if (isRepeat && running.current) return; // the previous read is still pending
      running.current?.abort();
      const control = new AbortController();
      running.current = control;
      load(control.signal)
        .then((value) => !control.signal.aborted && setState({ value, problem: null, key }))
        .catch((error) => {
          if (control.signal.aborted) return;
          setState((before) => ({ value: before.key === key ? before.value : null, problem: asProblem(error), key }));
        })
        .finally(() => {
          if (running.current === control) running.current = null;
        });
    },
    [key],
  );

  useEffect(() => {
    run(false);
    return () => {
      running.current?.abort();
      running.current = null;
    };
  }, [run]);

  const count = refreshCount.value;
  const first = useRef(count);
  useEffect(() => {
    if (live && count !== first.current) run(true);
    first.current = count;
  }, [count, live]);

  const isCurrent = state.key === key;
  return {
    value: isCurrent ? state.value : null,
    problem: isCurrent ? state.problem : null,
    isLoading: !isCurrent || (state.value === null && state.problem === null),
    reload: () => run(false),
  };
}

/** The types of a job's events, which are also the event names in its stream. */
const EVENT_TYPES = [
  ...["submitted", "queued", "started", "requeued", "parked", "answered", "resumed", "delivering", "retried"],
  ...["succeeded", "failed", "canceled", "expired", "blocked"],
  ...["progress", "stage", "log", "text_started", "cancel_requested", "prioritized"],
];

export interface Following {
  onEvent: (event: JobEvent) => void;
  onChunk: (chunk: Chunk) => void;
}

/** Follow the stream of a job after a given position, while the tab is visible and the job has not ended. */
export function useStream(id: string, tenant: string, after: string, following: Following): void {
  const latest = useRef(following);
  latest.current = following;
  const last = useRef(after);
  useEffect(() => {
    let stream: EventSource | null = null;
    const start = () => {
      stream?.close();
      stream = null;
      if (document.hidden) return;
      stream = new EventSource(streamOf(`jobs/${id}/stream`, { tenant, last_event_id: last.current }));
      const receive = (event: Event): string => {
        const { data, lastEventId } = event as MessageEvent<string>;
        last.current = lastEventId || last.current;
        return data;
      };
      for (const type of EVENT_TYPES)
        stream.addEventListener(type, (event) => latest.current.onEvent(JSON.parse(receive(event)) as JobEvent));
      stream.addEventListener("chunk", (event) => latest.current.onChunk(JSON.parse(receive(event)) as Chunk));
      stream.addEventListener("end", () => stream?.close());
    };
    start();
    document.addEventListener("visibilitychange", start);
    return () => {
      document.removeEventListener("visibilitychange", start);
      stream?.close();
    };
  }, [id, tenant]);
}
