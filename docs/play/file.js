// An environment in an ONNX file: runs its graph, and hands states on to the next run.

const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, int32: Int32Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
  uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, uint32: Uint32Array,
};

function uniform() {
  return crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

export class File {
  constructor(ort, session, metadata) {
    Object.assign(this, { ort, session, metadata });
    this.feed = {};
    for (const input of metadata.inputs) this.set(input.name, input.value ?? 0);
    if ("last.key" in this.feed) this.set("last.key", [...crypto.getRandomValues(new Uint32Array(2))]);
  }

  static async load(ort, name) {
    const [model, metadata] = await Promise.all([fetch(`${name}.onnx`), fetch(`${name}.json`)]);
    const session = await ort.InferenceSession.create(new Uint8Array(await model.arrayBuffer()));
    return new File(ort, session, await metadata.json());
  }

  // Set an input: a number for all elements, or lists of numbers.
  set(name, values) {
    if (Array.isArray(values)) values = values.flat(Infinity);
    const { dtype, shape } = this.metadata.inputs.find((each) => each.name === name);
    const array = new ARRAYS[dtype](shape.reduce((a, b) => a * b, 1));
    const one = (x) => (dtype === "int64" ? BigInt(x) : Number(x));
    for (let i = 0; i < array.length; i++) array[i] = one(Array.isArray(values) ? values[i] : values);
    this.feed[name] = new this.ort.Tensor(dtype, array, shape);
  }

  // Run the graph with some inputs. Random numbers are new ones, unless they are among these.
  async run(given = {}) {
    this.set("reset", 0);
    for (const { name, random, shape } of this.metadata.inputs) {
      const draw = random === "normal" ? normal : uniform;
      if (random) this.set(name, Array.from({ length: shape.reduce((a, b) => a * b, 1) }, draw));
    }
    for (const [name, values] of Object.entries(given)) this.set(name, values);
    const outputs = await this.session.run(this.feed);
    for (const [name, tensor] of Object.entries(outputs)) {
      if (`last.${name}` in this.feed) this.feed[`last.${name}`] = tensor;
    }
    return Object.fromEntries(Object.entries(outputs).map(([name, x]) => [name, Array.from(x.data, Number)]));
  }
}
