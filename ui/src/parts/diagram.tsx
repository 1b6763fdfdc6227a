// A lifecycle drawn: states in the order in which a job comes through them, and a lane for each end. Every state that
// can come to an end joins that end's lane with a dot, so that twenty arrows stay readable where they would cross.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { LifecycleInfo } from "../wire";
import { count, plain } from "../words";
import { StateBadge, toneOf } from "./basics";
import { Table } from "./table";
import "./diagram.css";

interface DiagramProps {
  lifecycle: LifecycleInfo;
  /** The state that a job is in. */
  at?: string;
  /** How many jobs are in each state; none, where it is not told. */
  counts?: Record<string, number>;
  /** The states that a job has come through, in order. */
  passed?: readonly string[];
}

export function Diagram({ lifecycle, at, counts, passed }: DiagramProps) {
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    const home = box.current;
    if (!home) return;
    const measure = () => setRoom(home.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(home);
    return () => watch.disconnect();
  }, []);
  const graph = read(lifecycle, passed ?? []);
  const isTall = counts !== undefined;
  const wide = across(graph, isTall);
  const isWide = wide.width * SMALLEST <= room;
  const drawing = isWide ? wide : down(graph, isTall);
  const scale = isWide ? Math.min(LARGEST, room / drawing.width) : 1;
  return (
    <div class="diagram">
      <div class="diagram-box" ref={box} tabIndex={0} role="group" aria-label={`Diagram of ${lifecycle.name}`}>
        <svg
          role="img"
          aria-label={inWords(lifecycle, graph, at)}
          viewBox={`0 0 ${drawing.width} ${drawing.height}`}
          width={drawing.width * scale}
          height={drawing.height * scale}
        >
          {drawing.lines.map((line) => (
            <Line key={line.key} line={line} />
          ))}
          {drawing.words.map((word) => (
            <text key={word.key} x={word.x} y={word.y} class="diagram-word" text-anchor={word.anchor}>
              {word.text}
            </text>
          ))}
          {drawing.states.map((state) => (
            <State
              key={state.name}
              box={state}
              tone={graph.tones[state.name] ?? "quiet"}
              jobs={counts?.[state.name] ?? 0}
              mark={state.name === at ? "at" : passed?.includes(state.name) ? "passed" : passed ? "ahead" : ""}
            />
          ))}
        </svg>
      </div>
      <Listing lifecycle={lifecycle} graph={graph} counts={counts} at={at} />
    </div>
  );
}

// What is drawn

interface Way {
  from: string;
  to: string;
  moments: string[];
  isPassed: boolean;
}

interface Graph {
  /** The states of jobs that have not ended, in the order in which one comes through them. */
  live: string[];
  ends: string[];
  ways: Way[];
  tones: Record<string, string>;
}

/** Outcomes in the order of their lanes. */
const OUTCOMES = ["succeeded", "failed", "blocked", "expired", "canceled"];

function read(lifecycle: LifecycleInfo, passed: readonly string[]): Graph {
  const ways = bundled(lifecycle, passed);
  const tones: Record<string, string> = {};
  for (const [name, phase] of Object.entries(lifecycle.states))
    tones[name] = toneOf(phase, lifecycle.ends[name] ?? null);
  const rank = (name: string) => OUTCOMES.indexOf(lifecycle.ends[name] ?? "");
  const ends = Object.keys(lifecycle.ends).sort((one, other) => rank(one) - rank(other));
  return { live: inOrder(lifecycle, ways), ends, ways, tones };
}

/** One arrow for all moments that lead the same way; a moment that leaves the state as it is has none. */
function bundled(lifecycle: LifecycleInfo, passed: readonly string[]): Way[] {
  const found = new Map<string, Way>();
  for (const { from_state: from, moment, to_state: to } of lifecycle.moves) {
    if (from === null || from === to) continue;
    const way = found.get(`${from} ${to}`);
    if (way) way.moments.push(moment);
    else {
      const isPassed = passed.some((name, index) => name === from && passed[index + 1] === to);
      found.set(`${from} ${to}`, { from, to, moments: [moment], isPassed });
    }
  }
  return [...found.values()];
}

/** Where every arrow that does not turn back leads to the right. */
function inOrder(lifecycle: LifecycleInfo, ways: readonly Way[]): string[] {
  const onward = ways.filter((way) => way.moments.some((moment) => moment !== "requeued"));
  const order: string[] = [];
  const seen = new Set<string>();
  const visit = (name: string) => {
    if (seen.has(name) || lifecycle.states[name] === "ended") return;
    seen.add(name);
    for (const way of onward.filter((each) => each.from === name).reverse()) visit(way.to);
    order.unshift(name);
  };
  for (const move of lifecycle.moves) if (move.from_state === null) visit(move.to_state);
  return order;
}

// Where it is drawn

interface Point {
  x: number;
  y: number;
}

interface Box extends Point {
  name: string;
  width: number;
  height: number;
}

interface Stroke {
  key: string;
  points: Point[];
  hasHead: boolean;
  dots: Point[];
  class: string;
}

interface Word extends Point {
  key: string;
  text: string;
  anchor: "start" | "middle";
}

interface Drawing {
  width: number;
  height: number;
  states: Box[];
  lines: Stroke[];
  words: Word[];
}

/** How far a drawing shrinks before it turns, and how far it grows on a large screen. */
const SMALLEST = 0.86;
const LARGEST = 1.3;
const EDGE = 10;
const BIRTH = 26;
const LETTER = 7.5;
const SMALL_LETTER = 6.2;
const ROUND = 8;

function sizeOf(graph: Graph, isTall: boolean): { width: number; height: number } {
  const longest = Math.max(...[...graph.live, ...graph.ends].map((name) => name.length));
  return { width: Math.max(104, longest * LETTER + 22), height: isTall ? 44 : 32 };
}

function said(way: Way): string {
  return way.moments.map(plain).join(", ");
}

/** An arrow that leads back, or past a neighbour: it goes around the states at a level of its own. */
interface Arc {
  way: Way;
  from: number;
  to: number;
  level: number;
}

function arcsOf(graph: Graph): Arc[] {
  const place = (name: string) => graph.live.indexOf(name);
  const found = graph.ways
    .filter((way) => place(way.from) >= 0 && place(way.to) >= 0 && place(way.to) !== place(way.from) + 1)
    .map((way) => ({ way, from: place(way.from), to: place(way.to), level: 0 }))
    .sort((one, other) => lengthOf(one) - lengthOf(other));
  for (const [index, arc] of found.entries()) {
    const near = found.slice(0, index).filter((other) => overlap(arc, other));
    while (near.some((other) => other.level === arc.level)) arc.level += 1;
  }
  return found;
}

function lengthOf(arc: Arc): number {
  return Math.abs(arc.to - arc.from);
}

function overlap(one: Arc, other: Arc): boolean {
  const [low, high] = [Math.min(one.from, one.to), Math.max(one.from, one.to)];
  return Math.min(other.from, other.to) < high && low < Math.max(other.from, other.to);
}

/** Ends that are left again, by where they lead: one arrow for all of them. */
function returnsOf(graph: Graph): Map<string, Way[]> {
  const found = new Map<string, Way[]>();
  for (const way of graph.ways.filter((each) => graph.ends.includes(each.from)))
    found.set(way.to, [...(found.get(way.to) ?? []), way]);
  return found;
}

/** Where arcs meet a state: spread over its side, so that none crosses another that it need not. */
function ports(graph: Graph, arcs: readonly Arc[], returns: ReadonlyMap<string, Way[]>) {
  return (index: number, key: string): number => {
    const here: { key: string; rank: number }[] = [];
    for (const arc of arcs) {
      const other = arc.from === index ? arc.to : arc.to === index ? arc.from : null;
      if (other === null) continue;
      // Those that come from the left stand left, the nearest first; those from the right right, the farthest first.
      const rank = other < index ? -100 + lengthOf(arc) : 100 - lengthOf(arc);
      here.push({ key: keyOf(arc.way), rank });
    }
    if (returns.has(graph.live[index] ?? "")) here.push({ key: "return", rank: 0 });
    here.sort((one, other) => one.rank - other.rank);
    return (here.findIndex((each) => each.key === key) + 1) / (here.length + 1);
  };
}

function classOf(graph: Graph, way: Way): string {
  const isBack = graph.live.indexOf(way.to) < graph.live.indexOf(way.from) || graph.ends.includes(way.from);
  return `${isBack ? "back" : ""} ${way.isPassed ? "passed" : ""}`;
}

interface Plan {
  isWide: boolean;
  width: number;
  height: number;
  gap: number;
  lastGap: number;
  step: number;
}

/** From left to right: arcs go above the states, and the lanes of the ends lie below them. */
function across(graph: Graph, isTall: boolean): Drawing {
  const { live, ends, ways } = graph;
  const lengthOfWords = (some: Way[]) => Math.max(0, ...some.map((way) => said(way).length * SMALL_LETTER));
  const next = ways.filter((way) => isNext(graph, way));
  const final = ways.filter((way) => way.from === live.at(-1) && ends.includes(way.to) && said(way) !== plain(way.to));
  const size = sizeOf(graph, isTall);
  const lastGap = Math.max(36, lengthOfWords(final) + 26 - size.width / 2);
  return draw(graph, { isWide: true, ...size, gap: Math.max(44, lengthOfWords(next) + 18), lastGap, step: 26 });
}

/** From the top down, for a narrow place: arcs go left of the states, and the lanes of the ends right of them. */
function down(graph: Graph, isTall: boolean): Drawing {
  return draw(graph, { isWide: false, ...sizeOf(graph, isTall), gap: 30, lastGap: 34, step: 14 });
}

function isNext(graph: Graph, way: Way): boolean {
  const from = graph.live.indexOf(way.from);
  return from >= 0 && graph.live.indexOf(way.to) === from + 1;
}

/** Both are one drawing: `along` runs from state to state, `beside` from the arcs over the states to the lanes. */
function draw(graph: Graph, { isWide, width, height, gap, lastGap, step }: Plan): Drawing {
  const { live, ends, ways } = graph;
  const arcs = arcsOf(graph);
  const returns = returnsOf(graph);
  const portOf = ports(graph, arcs, returns);
  const levels = Math.max(0, ...arcs.map((arc) => arc.level + 1)) + returns.size;
  const [length, depth] = isWide ? [width, height] : [height, width];

  const near = EDGE + (levels ? levels * step + 8 : 0);
  const far = near + depth;
  const begin = (index: number) => EDGE + BIRTH + index * (length + gap);
  const levelOf = (level: number) => near - 18 - level * step;
  const last = begin(live.length) - gap + lastGap;
  const laneOf = (index: number) => far + (isWide ? 26 + index * (height + 8) + height / 2 : 22 + index * 13);
  const endOf = (index: number) => last + index * (height + 10) + height / 2;

  const point = (along: number, beside: number): Point => (isWide ? { x: along, y: beside } : { x: beside, y: along });
  const boxOf = (name: string, along: number, beside: number) => ({ name, ...point(along, beside), width, height });
  const lines: Stroke[] = [];
  const words: Word[] = [];
  const line = (key: string, name: string, points: Point[], { hasHead = true, dots = [] as Point[] } = {}) =>
    lines.push({ key, points, hasHead, dots, class: name });
  const word = (key: string, text: string, { x, y }: Point, anchor: Word["anchor"] = "middle") =>
    words.push({ key, text, x, y, anchor });

  const centre = near + depth / 2;
  line("birth", "", [point(EDGE + 4, centre), point(begin(0), centre)], { dots: [point(EDGE + 4, centre)] });
  for (const way of ways.filter((each) => isNext(graph, each))) {
    const to = begin(live.indexOf(way.to));
    line(keyOf(way), classOf(graph, way), [point(to - gap, centre), point(to, centre)]);
    const at = point(to - gap / 2, centre);
    if (isWide) word(keyOf(way), said(way), { x: at.x - 3, y: at.y - 6 });
    else word(keyOf(way), said(way), { x: at.x + 8, y: at.y + 2 }, "start");
  }
  for (const { way, from, to, level } of arcs) {
    const out = begin(from) + length * portOf(from, keyOf(way));
    const into = begin(to) + length * portOf(to, keyOf(way));
    const at = levelOf(level);
    line(keyOf(way), classOf(graph, way), [point(out, near), point(out, at), point(into, at), point(into, near)]);
    if (isWide) word(keyOf(way), said(way), point((out + into) / 2, at - 4));
  }
  for (const [index, [target, from]] of [...returns].entries()) {
    const place = live.indexOf(target);
    const into = begin(place) + length * portOf(place, "return");
    const at = levelOf(levels - returns.size + index);
    const turn = last + width + 16 + index * 22;
    const farthest = Math.max(...from.map((way) => ends.indexOf(way.from)));
    for (const way of from) {
      const end = ends.indexOf(way.from);
      const joins = isWide
        ? [point(last + width, laneOf(end)), point(turn, laneOf(end))]
        : [point(endOf(end), near), point(endOf(end), at)];
      const onward = [...(isWide ? [point(turn, at)] : []), point(into, at), point(into, near)];
      const isWhole = end === farthest; // the others end where they meet it
      line(keyOf(way), classOf(graph, way), isWhole ? [...joins, ...onward] : joins, { hasHead: isWhole });
    }
    const text = [...new Set(from.map(said))].join(", ");
    if (isWide) word(`return ${target}`, text, point((turn + into) / 2, at - 4));
  }
  for (const [index, name] of live.entries()) {
    const joined = ways.filter((way) => way.from === name).map((way) => ends.indexOf(way.to));
    const at = begin(index) + length / 2;
    if (Math.max(...joined) >= 0)
      line(`out ${name}`, "out", [point(at, far), point(at, laneOf(Math.max(...joined)))], { hasHead: false });
  }
  for (const [index, end] of ends.entries()) {
    const into = ways.filter((way) => way.to === end);
    const at = laneOf(index);
    const stops = into.map((way) => begin(live.indexOf(way.from)) + length / 2);
    const start = point(Math.min(...stops), at);
    const points = isWide ? [start, point(last, at)] : [start, point(endOf(index), at), point(endOf(index), far)];
    const passed = into.some((way) => way.isPassed) ? "passed" : "";
    line(`lane ${end}`, `lane ${graph.tones[end]} ${passed}`, points, { dots: stops.map((stop) => point(stop, at)) });
    for (const [number, way] of into.entries())
      if (isWide && said(way) !== plain(end))
        word(keyOf(way), said(way), point((stops[number] ?? 0) + 8, at - 5), "start");
  }
  const final = Math.max(0, ends.length - 1);
  return {
    lines,
    words,
    states: [
      ...live.map((name, index) => boxOf(name, begin(index), near)),
      ...ends.map((name, index) =>
        isWide ? boxOf(name, last, laneOf(index) - height / 2) : boxOf(name, endOf(index) - height / 2, near),
      ),
    ],
    width: isWide ? last + width + EDGE + returns.size * 22 : laneOf(final) + EDGE,
    height: (isWide ? laneOf(final) : endOf(final)) + height / 2 + EDGE,
  };
}

function keyOf(way: Way): string {
  return `${way.from} ${way.to}`;
}

// How it is drawn

function Line({ line }: { line: Stroke }) {
  const end = line.points.at(-1) as Point;
  const before = line.points.at(-2) as Point;
  return (
    <g class={`diagram-line ${line.class}`}>
      <path d={rounded(line.points)} />
      {line.dots.map((dot, index) => (
        <circle key={index} cx={dot.x} cy={dot.y} r={3.5} />
      ))}
      {line.hasHead && <path class="diagram-head" d={head(before, end)} />}
    </g>
  );
}

function toward(from: Point, to: Point, length: number): Point {
  const far = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) / far) * length, y: from.y + ((to.y - from.y) / far) * length };
}

/** A line through points, with its corners rounded. */
function rounded(points: readonly Point[]): string {
  return points
    .map((point, index) => {
      const [before, after] = [points[index - 1], points[index + 1]];
      if (!before) return `M${point.x} ${point.y}`;
      if (!after) return `L${point.x} ${point.y}`;
      const room = Math.min(Math.hypot(point.x - before.x, point.y - before.y), ROUND * 2) / 2;
      const [into, out] = [toward(point, before, room), toward(point, after, room)];
      return `L${into.x} ${into.y}Q${point.x} ${point.y} ${out.x} ${out.y}`;
    })
    .join("");
}

function head(before: Point, end: Point): string {
  const back = toward(end, before, 8);
  const [aside, along] = [(end.y - back.y) / 2, (end.x - back.x) / 2];
  return `M${end.x} ${end.y}L${back.x - aside} ${back.y + along}L${back.x + aside} ${back.y - along}Z`;
}

interface StateProps {
  box: Box;
  tone: string;
  jobs: number;
  mark: string;
}

function State({ box, tone, jobs, mark }: StateProps) {
  const isTall = box.height > 40;
  const middle = box.x + box.width / 2;
  return (
    <g class={`diagram-state ${tone} ${mark} ${jobs ? "some" : ""}`} data-state={box.name}>
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx={9} />
      <text class="diagram-name" x={middle} y={box.y + (isTall ? 18 : 21)} text-anchor="middle">
        {plain(box.name)}
      </text>
      {isTall && (
        <text class="diagram-count" x={middle} y={box.y + 35} text-anchor="middle">
          {count(jobs)}
        </text>
      )}
    </g>
  );
}

// The same in words

function inWords(lifecycle: LifecycleInfo, graph: Graph, at: string | undefined): string {
  const here = at ? ` The job is in ${plain(at)}.` : "";
  return `Lifecycle ${lifecycle.name}: ${graph.live.map(plain).join(", ")}; ends ${graph.ends.map(plain).join(", ")}.${here}`;
}

interface ListingProps {
  lifecycle: LifecycleInfo;
  graph: Graph;
  counts: Record<string, number> | undefined;
  at: string | undefined;
}

function Listing({ lifecycle, graph, counts, at }: ListingProps) {
  const names = [...graph.live, ...graph.ends];
  return (
    <details class="diagram-listing">
      <summary>As a table</summary>
      <Table
        label={`States and moves of ${lifecycle.name}`}
        rows={names}
        keyOf={(name) => name}
        columns={[
          {
            name: "state",
            head: "State",
            cell: (name) => (
              <>
                <StateBadge
                  state={name}
                  phase={lifecycle.states[name] ?? "ended"}
                  outcome={lifecycle.ends[name] ?? null}
                />
                {name === at && " the job is here"}
              </>
            ),
          },
          ...(counts
            ? [
                {
                  name: "jobs",
                  head: "Jobs",
                  align: "right" as const,
                  cell: (name: string) => count(counts[name] ?? 0),
                },
              ]
            : []),
          {
            name: "ways",
            head: "Leads to",
            cell: (name) => {
              const out = graph.ways.filter((way) => way.from === name);
              return out.length ? (
                <ul>
                  {out.map((way) => (
                    <li key={way.to}>
                      {plain(way.to)} <span class="soft">when {said(way)}</span>
                    </li>
                  ))}
                </ul>
              ) : (
                <span class="soft">nowhere: it is an end</span>
              );
            },
          },
        ]}
      />
    </details>
  );
}
