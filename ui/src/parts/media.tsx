// Files to look at: pictures, films, sounds; anything else can be fetched.

import { useRef } from "preact/hooks";
import type { Artifact, Signed } from "../wire";
import { bytes } from "../words";
import { Badge } from "./basics";

/** Each look at a job signs its files anew. A new address would fetch a picture again, and begin a film again. */
function useFirst(signed: Signed | null): string | undefined {
  const kept = useRef<Signed | null>(null);
  if (!signed || !kept.current || new Date(kept.current.expires_at) <= new Date()) kept.current = signed;
  return kept.current?.url;
}

export function Media({ file }: { file: Artifact }) {
  const url = useFirst(file.download);
  const type = file.content_type.split("/")[0];
  return (
    <figure class="media">
      {!url ? (
        <p class="soft">It is not in storage.</p>
      ) : type === "image" ? (
        <a href={url} target="_blank" rel="noreferrer">
          <img src={url} alt={file.name} loading="lazy" />
        </a>
      ) : type === "video" ? (
        // biome-ignore lint/a11y/useMediaCaption: what a job makes has none
        <video src={url} controls preload="metadata" aria-label={file.name} />
      ) : type === "audio" ? (
        // biome-ignore lint/a11y/useMediaCaption: what a job makes has none
        <audio src={url} controls preload="metadata" aria-label={file.name} />
      ) : null}
      <figcaption>
        {url ? (
          <a href={url} target="_blank" rel="noreferrer">
            {file.name}
          </a>
        ) : (
          file.name
        )}{" "}
        <Badge>{file.content_type}</Badge> <span class="soft">{bytes(file.size)}</span>
      </figcaption>
    </figure>
  );
}
