// Runs one model in onnxruntime-node or onnxruntime-web, for run_model.py.
//
//     node run_model.cjs FOLDER
//
// FOLDER/task.json: {package, home, model, runs: [{name: {type, dims, file}, ...}, ...]}; the files
// hold plain little-endian arrays. FOLDER/results.json becomes a list per run of the outputs,
// {type, dims, file}, in the order of the graph.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');

const ARRAYS = {
  bool: Uint8Array, float16: Uint16Array, float32: Float32Array, float64: Float64Array,
  int16: Int16Array, int32: Int32Array, int64: BigInt64Array, int8: Int8Array,
  uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array, uint8: Uint8Array,
};

function tensor(ort, folder, { type, dims, file }) {
  const bytes = fs.readFileSync(path.join(folder, file));
  const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return new ort.Tensor(type, new ARRAYS[type](buffer), dims);
}

async function main(folder) {
  const task = JSON.parse(fs.readFileSync(path.join(folder, 'task.json')));
  const ort = createRequire(path.join(task.home, 'package.json'))(task.package);
  ort.env.logLevel = 'fatal';
  const providers = task.package === 'onnxruntime-web' ? ['wasm'] : ['cpu'];
  const model = new Uint8Array(fs.readFileSync(task.model));
  const session = await ort.InferenceSession.create(model, { executionProviders: providers });
  const results = [];
  for (const [run, feeds] of task.runs.entries()) {
    const given = {};
    // An input that nothing reads is no input of a lowered model either.
    for (const name of session.inputNames) given[name] = tensor(ort, folder, feeds[name]);
    const found = await session.run(given);
    results.push(session.outputNames.map((name, index) => {
      const { type, dims, data } = found[name];
      const file = `out${run}-${index}`;
      fs.writeFileSync(path.join(folder, file), new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return { type, dims, file };
    }));
  }
  fs.writeFileSync(path.join(folder, 'results.json'), JSON.stringify(results));
}

main(process.argv[2]).catch((error) => {
  console.error(String(error.message ?? error).split('\n')[0]);
  process.exit(1);
});
