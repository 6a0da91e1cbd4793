// A plugin of JupyterLab: it runs the first cell of the explorer's notebook when that is opened.
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
    app.shell.currentChanged.connect(changed);
    run(app.shell.currentWidget);
  },
};

window._JUPYTERLAB ??= {};
window._JUPYTERLAB["batchsim-first-cell"] = { init() {}, get: async () => () => ({ __esModule: true, default: plugin }) };
