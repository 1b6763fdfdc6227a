// Tables that can be operated by keyboard. On narrow screens each row becomes a card.

import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { place, setQuery } from "../router";

export interface Column<T> {
  name: string;
  head: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  align?: "right";
  /** Hidden below this width of the screen: `narrow` 700 px, `medium` 1,100 px. */
  hide?: "narrow" | "medium";
}

interface TableProps<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  /** Opens a row, by a click or by Enter. */
  onOpen?: (row: T) => void;
  selected?: ReadonlySet<string>;
  onSelect?: (selected: Set<string>) => void;
  empty?: ComponentChildren;
  toneOf?: (row: T) => string | undefined;
}

export function Table<T>(props: TableProps<T>) {
  const { label, columns, rows, keyOf, onOpen, selected, onSelect, empty, toneOf } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  if (!rows.length && empty) return <>{empty}</>;

  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const all = rows.map(keyOf);
  const isAll = all.length > 0 && all.every((key) => selected?.has(key));
  const onKey = (event: KeyboardEvent, row: T, index: number) => {
    if ((event.target as HTMLElement).closest("a, button, input, select")) return;
    const step =
      event.key === "j" || event.key === "ArrowDown" ? 1 : event.key === "k" || event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      (body.current?.rows[index + step] as HTMLElement | undefined)?.focus();
    } else if (event.key === "Enter" && onOpen) onOpen(row);
    else if (event.key === "x" && onSelect) toggle(keyOf(row));
  };
  const onClick = (event: MouseEvent, row: T) => {
    if ((event.target as HTMLElement).closest("a, button, input, label, select, summary")) return;
    if (String(getSelection() ?? "")) return;
    onOpen?.(row);
  };
  return (
    <div class="table-box">
      <table aria-label={label} class={onOpen ? "opens" : ""}>
        <thead>
          <tr>
            {onSelect && (
              <th class="tick">
                <input
                  type="checkbox"
                  aria-label="Select all on this page"
                  checked={isAll}
                  onChange={() => onSelect(new Set(isAll ? [] : all))}
                />
              </th>
            )}
            {columns.map((column) => (
              <th key={column.name} scope="col" class={`${column.align ?? ""} ${column.hide ?? ""}`}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row, index) => {
            const key = keyOf(row);
            return (
              <tr
                key={key}
                tabIndex={onOpen || onSelect ? 0 : undefined}
                class={toneOf?.(row)}
                data-key={key}
                onKeyDown={(event) => onKey(event, row, index)}
                onClick={(event) => onClick(event, row)}
              >
                {onSelect && (
                  <td class="tick">
                    <input
                      type="checkbox"
                      aria-label={`Select ${key}`}
                      checked={selected?.has(key)}
                      onChange={() => toggle(key)}
                    />
                  </td>
                )}
                {columns.map((column) => (
                  <td
                    key={column.name}
                    class={`${column.align ?? ""} ${column.hide ?? ""}`}
                    data-head={typeof column.head === "string" ? column.head : undefined}
                  >
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

interface PagerProps {
  next: string | null;
  /** The parameter of the URL that contains the cursor. */
  name?: string;
  note?: ComponentChildren;
}

/** Buttons for the next and the first page. The cursor is part of the URL. */
export function Pager({ next, name = "cursor", note }: PagerProps) {
  const isFirst = !place.value.query.get(name);
  const turn = (cursor: string | null) => setQuery({ [name]: cursor }, { replace: false });
  if (isFirst && !next && !note) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      <span class="soft">{note}</span>
      <button type="button" disabled={isFirst} onClick={() => turn(null)}>
        First page
      </button>
      <button type="button" disabled={!next} onClick={() => turn(next)}>
        Next page
      </button>
    </nav>
  );
}
