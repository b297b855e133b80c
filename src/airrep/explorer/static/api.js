// Questions to the server. A later question of one kind takes the place of an earlier one that has no answer yet.

const running = new Map();
let run = new AbortController();

export class Refused extends Error {}

// The answer, or null if another question of this kind came after it.
export async function ask(name, body, kind = name) {
  running.get(kind)?.abort();
  const control = new AbortController();
  running.set(kind, control);
  try {
    return await unlessAborted(name, body, control.signal);
  } finally {
    if (running.get(kind) === control) running.delete(kind);
  }
}

// All that fills the results is asked in one run. A new run takes the place of the one before, whose questions then have no answer.
export function begin() {
  run.abort();
  run = new AbortController();
  return run.signal;
}

// The answer, or null if another run was begun after it was asked.
export const askInRun = (name, body) => unlessAborted(name, body, run.signal);

async function unlessAborted(name, body, signal) {
  try {
    return await answer(name, body, signal);
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}

async function answer(name, body, signal) {
  const options = body === undefined
    ? { signal }
    : { signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`/api/v1/${name}`, options);
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refused("The server does not answer. Is airrep serve still running?");
  }
  let told;
  try {
    told = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refused(`The server answered ${response.status} without a message. Try again.`);
  }
  if (!response.ok) throw new Refused(told.error ?? `The server answered ${response.status}.`);
  return told;
}

export function forget(kind) {
  running.get(kind)?.abort();
}
