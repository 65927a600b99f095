// node-zookeeper-client: one session's calls, results and events, a line each.
//
//     NODE_PATH=…/node_modules node session.js HOST:PORT

'use strict';

const zookeeper = require('node-zookeeper-client');

const {ACL, CreateMode, Id, Permission} = zookeeper;

function connect(hosts) {
  return new Promise((resolve) => {
    const client = zookeeper.createClient(hosts, {sessionTimeout: 10000, retries: 0});
    client.once('connected', () => resolve(client));
    client.connect();
  });
}

function shown(client, value) {
  if (value === undefined || value === null) return String(value);
  if (Buffer.isBuffer(value)) return JSON.stringify(value.toString());
  if (Array.isArray(value)) {
    const all = value.map((one) => shown(client, one));
    return '[' + (typeof value[0] === 'string' ? all.sort() : all).join(' ') + ']';
  }
  if (value.czxid) {  // a Stat
    const owner = value.ephemeralOwner;
    const whose = owner.equals(Buffer.alloc(8)) ? 'nobody' :
      owner.equals(client.getSessionId()) ? 'me' : 'other';
    return `v${value.version} cv${value.cversion} av${value.aversion} len${value.dataLength} ` +
      `n${value.numChildren} ${whose}`;
  }
  if (value.permission !== undefined) return `${value.id.scheme}:${value.id.id}:${value.permission}`;
  if (typeof value === 'object') {
    const kept = {};
    for (const key of Object.keys(value).sort()) {
      if (key === 'header') kept.header = {type: value.header.type, err: value.header.err};
      else if (key === 'stat') kept.stat = shown(client, value.stat);
      else if (typeof value[key] !== 'function' && key !== 'chrootPath') kept[key] = value[key];
    }
    return JSON.stringify(kept);
  }
  return JSON.stringify(value);
}

async function play(hosts) {
  const client = await connect(hosts);
  const other = await connect(hosts);
  const seen = [];
  let wake = () => {};
  const watcher = (event) => {
    seen.push(`  event: ${event.getName()} ${event.getPath()}`);
    wake();
  };

  async function events(count) {
    while (seen.length < count) await new Promise((resolve) => { wake = resolve; });
    seen.splice(0).forEach((line) => console.log(line));
  }

  function call(name, ...args) {
    return callOn(client, name, ...args);
  }

  function callOn(on, name, ...args) {
    const shownArgs = args.filter((arg) => typeof arg === 'string' || typeof arg === 'number');
    return new Promise((resolve) => {
      on[name](...args, (error, ...results) => {
        const what = error ? `${error.name || error} ${error.code}` :
          results.map((result) => shown(on, result)).join(' ');
        console.log(`${name} ${shownArgs.join(' ')}: ${what}`);
        resolve(results);
      });
    });
  }

  await call('create', '/n', Buffer.from('root'), ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await call('create', '/n', Buffer.from('root'), ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await call('create', '/n/e', Buffer.from('x'), ACL.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
  await call('create', '/n/s-', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
  await call('create', '/n/s-', null, ACL.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
  await call('create', '/n/e/x', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await call('create', '/none/x', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await call('create', '/n/€', Buffer.from('€'), ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await call('mkdirp', '/n/a/b/c', Buffer.from('deep'));
  await call('getData', '/n', watcher);
  await call('getData', '/n/s-0000000001', null);
  await call('getData', '/none', watcher);
  await call('setData', '/n', Buffer.from('new'), 0);
  await events(1);
  await call('setData', '/n', Buffer.from('newer'), 0);
  await call('setData', '/n', Buffer.alloc(0), -1);
  await call('getData', '/n', null);
  await call('exists', '/n/later', watcher);
  await call('getChildren', '/n', watcher);
  await call('create', '/n/later', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  await events(2);
  await call('exists', '/n/later', watcher);
  await callOn(other, 'remove', '/n/later', -1);
  await events(1);
  await call('getChildren', '/none', null);
  await call('listSubTreeBFS', '/n');
  await call('getACL', '/n');
  await call('create', '/n/mine', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
  client.addAuthInfo('digest', Buffer.from('me:secret'));
  await call('setACL', '/n/mine', ACL.CREATOR_ALL_ACL, -1);
  await call('getACL', '/n/mine');
  await callOn(other, 'getData', '/n/mine', null);
  await callOn(other, 'setData', '/n/mine', Buffer.from('x'), -1);
  await callOn(other, 'setACL', '/n/mine', ACL.OPEN_ACL_UNSAFE, -1);
  await call('setACL', '/n/mine', [new ACL(Permission.READ, new Id('world', 'anyone'))], 0);
  await call('setACL', '/n/mine', [new ACL(Permission.READ, new Id('world', 'anyone'))], 1);
  await call('remove', '/n', -1);
  await call('remove', '/n/e', 7);
  await call('remove', '/n/e', -1);

  function commit(name, transaction) {
    return new Promise((resolve) => {
      transaction.commit((error, results) => {
        const what = error ? `${error.name} ${error.code} ` : '';
        console.log(`transaction ${name}: ${what}${(results || []).map((r) => shown(client, r)).join(' ')}`);
        resolve();
      });
    });
  }

  await commit('good', client.transaction()
    .create('/n/t', Buffer.from('1')).check('/n/t', 0).setData('/n/t', Buffer.from('2'), 0)
    .remove('/n/t', 1).create('/n/u-', null, ACL.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL));
  await commit('bad', client.transaction()
    .create('/n/t').remove('/n/none', -1).setData('/n/t', Buffer.from('2')));
  await call('exists', '/n/t', null);
  const [all] = await call('listSubTreeBFS', '/n');
  all.sort().reverse();
  for (const path of all) await call('remove', path, -1);
  await call('exists', '/n', null);
  console.log('granted', client.getSessionTimeout());
  for (const one of [client, other]) {
    await new Promise((resolve) => { one.once('disconnected', resolve); one.close(); });
  }
  console.log('done');
}

play(process.argv[2]).then(() => process.exit(0), (error) => {
  console.log(error);
  process.exit(1);
});
