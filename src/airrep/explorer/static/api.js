// Questions to the server. A later question of one kind takes the place of an earlier one that has no answer yet.

const running = new Map();

export class Refused extends Error {}

// The answer, or null if another question of this kind came after it.
export async function ask(name, body, kind = name) {
  running.get(kind)?.abort();
  const control = new AbortController();
  running.set(kind, control);
  try {
    return await answer(name, body, control.signal);
  } catch (error) {
    if (control.signal.aborted) return null;
    throw error;
  } finally {
    if (running.get(kind) === control) running.delete(kind);
  }
}

async function answer(name, body, signal) {
  const options = body === undefined
    ? { signal }
    : { signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`/api/${name}`, options);
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refused("The server does not answer. Is airrep serve still running?");
  }
  let told;
  try {
    told = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refused(`The server answered ${response.status} and no more. Try again.`);
  }
  if (!response.ok) throw new Refused(told.error ?? `The server answered ${response.status}.`);
  return told;
}

export function forget(kind) {
  running.get(kind)?.abort();
}
