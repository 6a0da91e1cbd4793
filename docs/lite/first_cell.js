// A plugin of JupyterLab: it runs the first cell of the explorer's notebook when that is opened, and says when storage is full.
// A kernel waits for an answer to each request of files, for ever. So what cannot be stored is in this page's memory.
const rememberUnstored = (contents, say) => {
  const unstored = new Map();
  const remember = (path, model) => {
    const now = new Date().toISOString();
    const made = { name: path.split("/").pop(), type: "file", format: "text", content: "", created: now, writable: true };
    unstored.set(path, { ...made, ...model, path, last_modified: now });
    say();
    return unstored.get(path);
  };
  const known = (error, path) => {
    if (!unstored.has(path)) throw error;
    return unstored.get(path);
  };
  const get = contents.get.bind(contents);
  contents.get = async (path, options) => unstored.get(path) ?? get(path, options);
  const save = contents.save.bind(contents);
  contents.save = async (path, options) => {
    const model = await save(path, options).catch(() => null);
    if (model) unstored.delete(path);
    return model ?? remember(path, options);
  };
  const orElse = (name, answer) => {
    const stored = contents[name].bind(contents);
    contents[name] = (...given) => stored(...given).catch((error) => answer(error, ...given));
  };
  orElse("newUntitled", (_, options) => remember(`${options.path}/unstored-${unstored.size}`, { type: options.type }));
  orElse("rename", (error, path, there) => {
    const model = known(error, path);
    unstored.delete(path);
    return remember(there, model);
  });
};

const plugin = {
  id: "batchsim:first-cell",
  autoStart: true,
  activate: (app) => {
    const run = async (panel) => {
      if (!panel?.context?.path?.endsWith("00-explorer.ipynb")) return;
      app.shell.currentChanged.disconnect(changed);
      await panel.context.ready;
      panel.content.activeCellIndex = [...panel.content.model.cells].findIndex((cell) => cell.type === "code");
      await panel.sessionContext.ready;
      await app.commands.execute("notebook:run-cell");
    };
    const changed = (_, { newValue }) => run(newValue);
    let said = false;
    rememberUnstored(app.serviceManager.contents, () => {
      const message = "This browser could not store a file, as when its storage is full: files and progress are not kept.";
      if (!said) app.commands.execute("apputils:notify", { message, type: "error", options: { autoClose: false } });
      said = true;
    });
    app.shell.currentChanged.connect(changed);
    run(app.shell.currentWidget);
  },
};

window._JUPYTERLAB ??= {};
window._JUPYTERLAB["batchsim-first-cell"] = { init() {}, get: async () => () => ({ __esModule: true, default: plugin }) };
