// Previews of images, videos and audio; other files are links.

import { useRef } from "preact/hooks";
import type { Artifact, Signed } from "../wire";
import { bytes } from "../words";
import { Badge } from "./basics";

/** The first URL, while it is valid. Each read of a job signs new ones, which would reload images and restart videos. */
function useFirst(signed: Signed | null): string | undefined {
  const first = useRef<Signed | null>(null);
  if (!signed || !first.current || new Date(first.current.expires_at) <= new Date()) first.current = signed;
  return first.current?.url;
}

export function Media({ file }: { file: Artifact }) {
  const url = useFirst(file.download);
  const type = file.content_type.split("/")[0];
  return (
    <figure class="media">
      {!url ? (
        <p class="soft">The file is not in storage.</p>
      ) : type === "image" ? (
        <a href={url} target="_blank" rel="noreferrer">
          <img src={url} alt={file.name} loading="lazy" />
        </a>
      ) : type === "video" ? (
        // biome-ignore lint/a11y/useMediaCaption: files made by jobs have no captions
        <video src={url} controls preload="metadata" aria-label={file.name} />
      ) : type === "audio" ? (
        // biome-ignore lint/a11y/useMediaCaption: files made by jobs have no captions
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
