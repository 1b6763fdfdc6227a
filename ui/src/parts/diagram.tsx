// The diagram of a lifecycle: the states in the order in which a job passes them, and a lane for each final state. Every
// state from which a job can end joins the lane with a dot, so that twenty edges remain readable instead of crossing.

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
  /** The number of jobs in each state; undefined if it is not shown. */
  counts?: Record<string, number>;
  /** The states that a job has passed, in order. */
  passed?: readonly string[];
}

export function Diagram({ lifecycle, at, counts, passed }: DiagramProps) {
  const box = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setRoom(element.clientWidth);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
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

// The graph

interface Edge {
  from: string;
  to: string;
  events: string[];
  isPassed: boolean;
}

interface Graph {
  /** The states that are not final, in the order in which a job passes them. */
  live: string[];
  ends: string[];
  edges: Edge[];
  tones: Record<string, string>;
}

/** Outcomes in the order of their lanes. */
const OUTCOMES = ["succeeded", "failed", "blocked", "expired", "canceled"];

function read(lifecycle: LifecycleInfo, passed: readonly string[]): Graph {
  const edges = bundled(lifecycle, passed);
  const tones: Record<string, string> = {};
  for (const [name, phase] of Object.entries(lifecycle.states))
    tones[name] = toneOf(phase, lifecycle.ends[name] ?? null);
  const rank = (name: string) => OUTCOMES.indexOf(lifecycle.ends[name] ?? "");
  const ends = Object.keys(lifecycle.ends).sort((one, other) => rank(one) - rank(other));
  return { live: inOrder(lifecycle, edges), ends, edges, tones };
}

/** One edge for all lifecycle events between the same two states. Events that do not change the state have none. */
function bundled(lifecycle: LifecycleInfo, passed: readonly string[]): Edge[] {
  const found = new Map<string, Edge>();
  for (const { from_state: from, event, to_state: to } of lifecycle.transitions) {
    if (from === null || from === to) continue;
    const edge = found.get(`${from} ${to}`);
    if (edge) edge.events.push(event);
    else {
      const isPassed = passed.some((name, index) => name === from && passed[index + 1] === to);
      found.set(`${from} ${to}`, { from, to, events: [event], isPassed });
    }
  }
  return [...found.values()];
}

/** The states in an order in which every edge points to the right, except those that lead back. */
function inOrder(lifecycle: LifecycleInfo, edges: readonly Edge[]): string[] {
  const onward = edges.filter((edge) => edge.events.some((event) => event !== "requeued"));
  const order: string[] = [];
  const seen = new Set<string>();
  const visit = (name: string) => {
    if (seen.has(name) || lifecycle.states[name] === "ended") return;
    seen.add(name);
    for (const edge of onward.filter((each) => each.from === name).reverse()) visit(edge.to);
    order.unshift(name);
  };
  for (const transition of lifecycle.transitions) if (transition.from_state === null) visit(transition.to_state);
  return order;
}

// The layout

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

/** The scale below which the layout becomes vertical, and the largest scale on wide screens. */
const SMALLEST = 0.86;
const LARGEST = 1.3;
const EDGE = 10;
const LEAD_IN = 26;
const LETTER = 7.5;
const SMALL_LETTER = 6.2;
const ROUND = 8;

function sizeOf(graph: Graph, isTall: boolean): { width: number; height: number } {
  const longest = Math.max(...[...graph.live, ...graph.ends].map((name) => name.length));
  return { width: Math.max(104, longest * LETTER + 22), height: isTall ? 44 : 32 };
}

function labelOf(edge: Edge): string {
  return edge.events.map(plain).join(", ");
}

/** An edge that leads back or skips a state. It is drawn around the states, on a level of its own. */
interface Arc {
  edge: Edge;
  from: number;
  to: number;
  level: number;
}

function arcsOf(graph: Graph): Arc[] {
  const place = (name: string) => graph.live.indexOf(name);
  const found = graph.edges
    .filter((edge) => place(edge.from) >= 0 && place(edge.to) >= 0 && place(edge.to) !== place(edge.from) + 1)
    .map((edge) => ({ edge, from: place(edge.from), to: place(edge.to), level: 0 }))
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

/** The edges that leave final states, by target: those with the same target share one line. */
function returnsOf(graph: Graph): Map<string, Edge[]> {
  const found = new Map<string, Edge[]>();
  for (const edge of graph.edges.filter((each) => graph.ends.includes(each.from)))
    found.set(edge.to, [...(found.get(edge.to) ?? []), edge]);
  return found;
}

/** Where arcs meet a state: spread over its side in an order that avoids unnecessary crossings. */
function ports(graph: Graph, arcs: readonly Arc[], returns: ReadonlyMap<string, Edge[]>) {
  return (index: number, key: string): number => {
    const here: { key: string; rank: number }[] = [];
    for (const arc of arcs) {
      const other = arc.from === index ? arc.to : arc.to === index ? arc.from : null;
      if (other === null) continue;
      // Arcs from the left are placed left, the nearest first; arcs from the right right, the farthest first.
      const rank = other < index ? -100 + lengthOf(arc) : 100 - lengthOf(arc);
      here.push({ key: keyOf(arc.edge), rank });
    }
    if (returns.has(graph.live[index] ?? "")) here.push({ key: "return", rank: 0 });
    here.sort((one, other) => one.rank - other.rank);
    return (here.findIndex((each) => each.key === key) + 1) / (here.length + 1);
  };
}

function classOf(graph: Graph, edge: Edge): string {
  const isBack = graph.live.indexOf(edge.to) < graph.live.indexOf(edge.from) || graph.ends.includes(edge.from);
  return `${isBack ? "back" : ""} ${edge.isPassed ? "passed" : ""}`;
}

interface Plan {
  isWide: boolean;
  width: number;
  height: number;
  gap: number;
  lastGap: number;
  step: number;
}

/** The horizontal layout: arcs above the states, lanes of the final states below them. */
function across(graph: Graph, isTall: boolean): Drawing {
  const { live, ends, edges } = graph;
  const lengthOfWords = (some: Edge[]) => Math.max(0, ...some.map((edge) => labelOf(edge).length * SMALL_LETTER));
  const next = edges.filter((edge) => isNext(graph, edge));
  const final = edges.filter(
    (edge) => edge.from === live.at(-1) && ends.includes(edge.to) && labelOf(edge) !== plain(edge.to),
  );
  const size = sizeOf(graph, isTall);
  const lastGap = Math.max(36, lengthOfWords(final) + 26 - size.width / 2);
  return draw(graph, { isWide: true, ...size, gap: Math.max(44, lengthOfWords(next) + 18), lastGap, step: 26 });
}

/** The vertical layout, for narrow containers: arcs left of the states, lanes of the final states right of them. */
function down(graph: Graph, isTall: boolean): Drawing {
  return draw(graph, { isWide: false, ...sizeOf(graph, isTall), gap: 30, lastGap: 34, step: 14 });
}

function isNext(graph: Graph, edge: Edge): boolean {
  const from = graph.live.indexOf(edge.from);
  return from >= 0 && graph.live.indexOf(edge.to) === from + 1;
}

/** Draws both layouts: `along` is the axis from state to state, `beside` the one from the arcs to the lanes. */
function draw(graph: Graph, { isWide, width, height, gap, lastGap, step }: Plan): Drawing {
  const { live, ends, edges } = graph;
  const arcs = arcsOf(graph);
  const returns = returnsOf(graph);
  const portOf = ports(graph, arcs, returns);
  const levels = Math.max(0, ...arcs.map((arc) => arc.level + 1)) + returns.size;
  const [length, depth] = isWide ? [width, height] : [height, width];

  const near = EDGE + (levels ? levels * step + 8 : 0);
  const far = near + depth;
  const begin = (index: number) => EDGE + LEAD_IN + index * (length + gap);
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
  line("start", "", [point(EDGE + 4, centre), point(begin(0), centre)], { dots: [point(EDGE + 4, centre)] });
  for (const edge of edges.filter((each) => isNext(graph, each))) {
    const to = begin(live.indexOf(edge.to));
    line(keyOf(edge), classOf(graph, edge), [point(to - gap, centre), point(to, centre)]);
    const at = point(to - gap / 2, centre);
    if (isWide) word(keyOf(edge), labelOf(edge), { x: at.x - 3, y: at.y - 6 });
    else word(keyOf(edge), labelOf(edge), { x: at.x + 8, y: at.y + 2 }, "start");
  }
  for (const { edge, from, to, level } of arcs) {
    const out = begin(from) + length * portOf(from, keyOf(edge));
    const into = begin(to) + length * portOf(to, keyOf(edge));
    const at = levelOf(level);
    line(keyOf(edge), classOf(graph, edge), [point(out, near), point(out, at), point(into, at), point(into, near)]);
    if (isWide) word(keyOf(edge), labelOf(edge), point((out + into) / 2, at - 4));
  }
  for (const [index, [target, from]] of [...returns].entries()) {
    const place = live.indexOf(target);
    const into = begin(place) + length * portOf(place, "return");
    const at = levelOf(levels - returns.size + index);
    const turn = last + width + 16 + index * 22;
    const farthest = Math.max(...from.map((edge) => ends.indexOf(edge.from)));
    for (const edge of from) {
      const end = ends.indexOf(edge.from);
      const joins = isWide
        ? [point(last + width, laneOf(end)), point(turn, laneOf(end))]
        : [point(endOf(end), near), point(endOf(end), at)];
      const onward = [...(isWide ? [point(turn, at)] : []), point(into, at), point(into, near)];
      const isWhole = end === farthest; // the other lines end where they join this one
      line(keyOf(edge), classOf(graph, edge), isWhole ? [...joins, ...onward] : joins, { hasHead: isWhole });
    }
    const text = [...new Set(from.map(labelOf))].join(", ");
    if (isWide) word(`return ${target}`, text, point((turn + into) / 2, at - 4));
  }
  for (const [index, name] of live.entries()) {
    const joined = edges.filter((edge) => edge.from === name).map((edge) => ends.indexOf(edge.to));
    const at = begin(index) + length / 2;
    if (Math.max(...joined) >= 0)
      line(`out ${name}`, "out", [point(at, far), point(at, laneOf(Math.max(...joined)))], { hasHead: false });
  }
  for (const [index, end] of ends.entries()) {
    const into = edges.filter((edge) => edge.to === end);
    const at = laneOf(index);
    const stops = into.map((edge) => begin(live.indexOf(edge.from)) + length / 2);
    const start = point(Math.min(...stops), at);
    const points = isWide ? [start, point(last, at)] : [start, point(endOf(index), at), point(endOf(index), far)];
    const passed = into.some((edge) => edge.isPassed) ? "passed" : "";
    line(`lane ${end}`, `lane ${graph.tones[end]} ${passed}`, points, { dots: stops.map((stop) => point(stop, at)) });
    for (const [number, edge] of into.entries())
      if (isWide && labelOf(edge) !== plain(end))
        word(keyOf(edge), labelOf(edge), point((stops[number] ?? 0) + 8, at - 5), "start");
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

function keyOf(edge: Edge): string {
  return `${edge.from} ${edge.to}`;
}

// The drawing

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

// The text alternatives

function inWords(lifecycle: LifecycleInfo, graph: Graph, at: string | undefined): string {
  const here = at ? ` Current state: ${plain(at)}.` : "";
  return `Lifecycle ${lifecycle.name}: ${graph.live.map(plain).join(", ")}; terminal states: ${graph.ends.map(plain).join(", ")}.${here}`;
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
        label={`States and transitions of ${lifecycle.name}`}
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
                {name === at && " current state"}
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
            name: "edges",
            head: "Transitions to",
            cell: (name) => {
              const out = graph.edges.filter((edge) => edge.from === name);
              return out.length ? (
                <ul>
                  {out.map((edge) => (
                    <li key={edge.to}>
                      {plain(edge.to)} <span class="soft">when {labelOf(edge)}</span>
                    </li>
                  ))}
                </ul>
              ) : (
                <span class="soft">none (terminal)</span>
              );
            },
          },
        ]}
      />
    </details>
  );
}
