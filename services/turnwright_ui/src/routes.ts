/** Where one is on the page: `#/word/part/part`, each part encoded. Nothing of it is ever sent to a server. */
export const to = (...parts: (string | number)[]): string => `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}`;
export const go = (...parts: (string | number)[]): void => void (location.hash = to(...parts));

export function parts(): string[] {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}
