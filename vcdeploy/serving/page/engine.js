// What runs the models of this page: the server that it comes from. `vcdeploy export --web` writes browser.js here.
//
//   models() -> [{ id, kind, unit, dim, layers, sharpness, epsilon, precision, backend }]
//   complete({ model, prompt, length, temperature, topP, seed }, signal)
//     -> async iterator of lists of tokens { text, m, logProbability, others: [{ text, logProbability }] }
//   compose({ model, meter, key, start, temperature, topP, seed }, signal)
//     -> { abc, symbols, m, meter, key, seed, title, complete }; start: symbols of the first bars
export * from "./server.js";
