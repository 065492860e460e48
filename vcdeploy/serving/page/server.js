// The engine of the page over HTTP: the API of `vcdeploy serve`.

const TOKEN = "vcdeploy.token"; // in this tab's storage

export class Unauthorized extends Error {}

export const useToken = (token) => sessionStorage.setItem(TOKEN, token);

async function ask(path, body, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(token && { Authorization: `Bearer ${token}` }) };
  const options = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal };
  const answer = await fetch(new URL(path, document.baseURI), options);
  if (answer.ok) return answer;
  const said = await answer.json().then((content) => content.error.message, () => answer.statusText);
  throw new (answer.status === 401 ? Unauthorized : Error)(said);
}

export async function models() {
  return (await (await ask("v1/models")).json()).data;
}

export async function* complete({ model, prompt, length, temperature, topP, seed }, signal) {
  const request = { model, prompt, max_tokens: length, temperature, top_p: topP, seed, stream: true, logprobs: 5, m: true };
  const answer = await ask("v1/completions", request, signal);
  for await (const event of events(answer.body)) {
    if (event.error) throw new Error(event.error.message);
    const [{ m, logprobs }] = event.choices;
    yield m.map((each, i) => ({
      text: logprobs.tokens[i],
      m: each,
      logProbability: logprobs.token_logprobs[i],
      others: Object.entries(logprobs.top_logprobs[i])
        .map(([text, logProbability]) => ({ text, logProbability }))
        .sort((a, b) => b.logProbability - a.logProbability),
    }));
  }
}

// The JSON of server-sent events, up to [DONE].
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server closed the connection before the end");
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      yield JSON.parse(part.slice("data: ".length));
    }
  }
}

export async function compose({ model, meter, key, start, temperature, topP, seed }, signal) {
  const request = { model, meter, key, start: start.join(" "), temperature, top_p: topP, seed };
  return (await ask("v1/tunes", request, signal)).json();
}
