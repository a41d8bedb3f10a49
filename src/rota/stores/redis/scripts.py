"""The Lua scripts of the Redis store: each call of a store is one of them, so it is one step and one trip.

KEYS[1] is the prefix of all keys of a namespace, its hash tag included; ARGV[1] is what is asked, as JSON.
Every number travels as text: a Lua number is a double, exact for microseconds until the year 2255, but
neither cjson nor tostring would print it in full.

    epoch        hash    which server process remembers, since when, and where it was promoted
    marks        hash    mark -> instant
    rows, out    hash    ROW -> the row as JSON, its version first; its output, which only the history reads
    names        zset    TASK, a zero byte, DUE:ATTEMPT, in the order of the bytes
    all, ended   zset    ROW by due instant; final rows by when they ended
    open, tasks  set     ROW of open rows; tasks that have rows
    held:KEY     hash    place -> lease as JSON; fence. It expires an hour after the last lease has lapsed
    live         zset    keys by when the last lease on them lapses

ROW is DUE:ATTEMPT:TASK, the numbers padded so that they are in order.
"""

from __future__ import annotations

from typing import Final

COMMON: Final = """
local P = KEYS[1]
local A = cjson.decode(ARGV[1])
local V, SINCE, START_BY, TASK, DUE, ATTEMPT, TOKEN, SERVER, KEEP_UNTIL = 1, 2, 3, 4, 5, 6, 7, 8, 9
local CAUSE, OUTCOME, REASON, ENDED, TOOK, COUNT, LAST, DETAIL = 10, 11, 12, 13, 14, 15, 16, 17
local call = redis.call
local time = call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local answers = {}

local function str(number) return string.format('%.0f', number) end
local function give(...) answers[#answers + 1] = {...} end

-- The epoch: whose memory this is. It begins anew where it is missing, on another process of the server
-- (which may have less on its disk than was said; not if it is durable), and where a replica has taken over.
local function told(section, sign)
  local said = redis.pcall('INFO', section)
  return type(said) == 'string' and string.match(said, sign)
end
local run = told('server', 'run_id:(%w+)')
if not run then return redis.error_reply('NOINFO the server does not tell its run_id') end
local promoted = told('replication', 'second_repl_offset:(%-?%d+)') or '-1'
local known = call('HMGET', P .. 'epoch', 'run', 'at', 'promoted')
local function begin()
  known[2] = str(now)
  call('HSET', P .. 'epoch', 'run', run, 'at', known[2], 'promoted', promoted)
end
if not known[2] or (known[1] ~= run and not A.durable) or (promoted ~= '-1' and promoted ~= known[3]) then
  begin()
end
local epoch = tonumber(known[2])
if A.touch then
  call('SET', P .. 'touch', str(now)) -- WAIT counts from the last write of a connection
end

local function mark(name)
  local at = call('HGET', P .. 'marks', name)
  return at and tonumber(at)
end

local function pruned(task) return mark('pruned:' .. task) end

local function move(name, value, first)
  local at = mark(name)
  if value > now then value = now end
  if at and (first or at >= value) then return at end
  call('HSET', P .. 'marks', name, str(value))
  return value
end

local function field_of(due, attempt) return string.format('%017.0f:%06d', due, attempt) end

local function row_of(everywhere) return string.match(everywhere, '^(%d+:%d+):(.*)$') end

local function read(task, field)
  local text = call('HGET', P .. 'rows', field .. ':' .. task)
  if text then return cjson.decode(text), text end
end

local function output_of(task, field) return call('HGET', P .. 'out', field .. ':' .. task) or '' end

-- The rows of one task: from just after an instant (or all) to the last.
local function after(task, due)
  local from = due and ('(' .. task .. '\\0' .. string.format('%017.0f:\\255', due)) or ('[' .. task .. '\\0')
  return from, '(' .. task .. '\\1'
end

local function field_in(task, name) return string.sub(name, #task + 2) end

local function drop(task, field)
  local everywhere = field .. ':' .. task
  call('HDEL', P .. 'rows', everywhere)
  call('HDEL', P .. 'out', everywhere)
  call('ZREM', P .. 'names', task .. '\\0' .. field)
  call('ZREM', P .. 'all', everywhere)
  call('ZREM', P .. 'ended', everywhere)
  call('SREM', P .. 'open', everywhere)
  if call('ZLEXCOUNT', P .. 'names', after(task)) == 0 then call('SREM', P .. 'tasks', task) end
end

local function write(row)
  local task, field, text = row[TASK], field_of(row[DUE], row[ATTEMPT]), cjson.encode(row)
  local everywhere = field .. ':' .. task
  call('HSET', P .. 'rows', everywhere, text)
  call('ZADD', P .. 'names', 0, task .. '\\0' .. field)
  call('ZADD', P .. 'all', row[DUE], everywhere)
  call('SADD', P .. 'tasks', task)
  if row[OUTCOME] == '' then
    call('SADD', P .. 'open', everywhere)
  else
    call('SREM', P .. 'open', everywhere)
    call('ZADD', P .. 'ended', row[ENDED], everywhere)
  end
  return text
end

-- A tick asks for a thousand at once, so what can be done for all together is, at most so many in a command.
local function together(most, list, ask)
  for first = 1, #list, most do ask(unpack(list, first, math.min(first + most - 1, #list))) end
end

-- Leases: name, token, owner, since, until, fence, slot, note.
local function holders(key)
  local kept, found, fence = call('HGETALL', P .. 'held:' .. key), {}, 0
  for i = 1, #kept, 2 do
    if kept[i] == 'fence' then
      fence = tonumber(kept[i + 1])
    else
      local lease = cjson.decode(kept[i + 1])
      if tonumber(lease[5]) > now then found[#found + 1] = lease end
    end
  end
  return found, fence
end

local function keep(key)
  local last = now
  for _, lease in ipairs((holders(key))) do last = math.max(last, tonumber(lease[5])) end
  if last > now then
    call('ZADD', P .. 'live', last, key)
  else
    call('ZREM', P .. 'live', key)
  end
  call('PEXPIREAT', P .. 'held:' .. key, str(math.floor(last / 1000) + 3601000))
end

local function hold(lease)
  local kept = P .. 'held:' .. lease[1]
  call('HSET', kept, lease[7], cjson.encode(lease))
  if lease[6] ~= '0' then call('HSET', kept, 'fence', lease[6]) end
  keep(lease[1])
end

local function later(ttl)
  local at = now + tonumber(ttl)
  return at < 253402300799999999 and str(at) or '253402300799999999' -- the last microsecond of 9999
end

local function prolong(lease, ttl, note)
  local at = later(ttl)
  if tonumber(at) > tonumber(lease[5]) then lease[5] = at end
  lease[8] = note or lease[8]
  hold(lease)
  give('lease', cjson.encode(lease))
end
"""

END: Final = "\nreturn {str(now), known[2], answers}\n"

LOOK: Final = (
    COMMON
    + """
local shown, wanted, marks, rows, leases = {}, {}, {}, {}, {}
for _, asked in ipairs(A.marks) do
  local task, name, start = asked[1], asked[2], tonumber(A.since)
  local at, gone = mark(name), pruned(task)
  if at then
    start = at
    marks[#marks + 1] = name
    marks[#marks + 1] = str(at)
  end
  if gone then
    start = math.max(start, gone)
    marks[#marks + 1] = 'pruned:' .. task
    marks[#marks + 1] = str(gone)
  end
  for _, name in ipairs(call('ZRANGEBYLEX', P .. 'names', after(task, start))) do
    wanted[#wanted + 1] = field_in(task, name) .. ':' .. task
    shown[wanted[#wanted]] = true
  end
end
for _, everywhere in ipairs(call('SMEMBERS', P .. 'open')) do
  if not shown[everywhere] then wanted[#wanted + 1] = everywhere end
end
local lost = {} -- what an index names and is not there was evicted: this memory is not what it was
together(1000, wanted, function(...)
  local asked = {...}
  for i, text in ipairs(call('HMGET', P .. 'rows', ...)) do
    if text then rows[#rows + 1] = text else lost[#lost + 1] = asked[i] end
  end
end)
for _, everywhere in ipairs(lost) do
  local field, task = row_of(everywhere)
  drop(task, field)
end
if #lost > 0 then begin() end
call('ZREMRANGEBYSCORE', P .. 'live', '-inf', str(now))
for _, key in ipairs(call('ZRANGE', P .. 'live', 0, -1)) do
  for _, lease in ipairs((holders(key))) do leases[#leases + 1] = cjson.encode(lease) end
end
answers = {marks, rows, leases}
"""
    + END
)

CLAIM: Final = (
    COMMON
    + """
local tasks, gone, known_task = {}, {}, {}
for _, asked in ipairs(A.items) do
  if not known_task[asked[1]] then
    known_task[asked[1]] = true
    tasks[#tasks + 1] = 'pruned:' .. asked[1]
  end
end
together(1000, tasks, function(...)
  local names = {...}
  for i, at in ipairs(call('HMGET', P .. 'marks', ...)) do gone[names[i]] = at and tonumber(at) end
end)
local fields, keys, texts, start_by = {}, {}, {}, {}
for i, asked in ipairs(A.items) do
  fields[i] = field_of(asked[2], asked[3])
  keys[i] = fields[i] .. ':' .. asked[1]
end
together(1000, keys, function(...)
  for _, text in ipairs(call('HMGET', P .. 'rows', ...)) do texts[#texts + 1] = text end
end)
local flags, others, written, names, all, open = {}, {}, {}, {}, {}, {}
local head = '["' .. A.version .. '","' .. str(now) .. '","'
for i, asked in ipairs(A.items) do
  local task, due, attempt, before, not_after, within, rest = unpack(asked)
  local last = gone['pruned:' .. task]
  if texts[i] then
    flags[i] = 'r'
    others[#others + 1] = texts[i]
    others[#others + 1] = call('HGET', P .. 'out', keys[i]) or ''
  elseif before <= epoch then
    flags[i] = 's'
  elseif now < before then
    flags[i] = 'e'
  elseif now > not_after or (last and due <= last) then
    flags[i] = 't'
  else
    flags[i] = 'g'
    local n = 2 * #open
    start_by[within] = start_by[within] or str(now + within)
    written[n + 1], written[n + 2] = keys[i], head .. start_by[within] .. '",' .. rest
    names[n + 1], names[n + 2] = '0', task .. '\\0' .. fields[i]
    all[n + 1], all[n + 2] = string.sub(fields[i], 1, 17), keys[i] -- as text: a number costs more to pass
    open[#open + 1] = keys[i]
    known_task[task] = 'new'
  end
end
local begun = {}
for task, how in pairs(known_task) do
  if how == 'new' then begun[#begun + 1] = task end
end
together(1000, written, function(...) call('HSET', P .. 'rows', ...) end)
together(1000, names, function(...) call('ZADD', P .. 'names', ...) end)
together(1000, all, function(...) call('ZADD', P .. 'all', ...) end)
together(1000, open, function(...) call('SADD', P .. 'open', ...) end)
together(1000, begun, function(...) call('SADD', P .. 'tasks', ...) end)
answers = {table.concat(flags), others}
"""
    + END
)
"""Answers a letter for each claim: granted, row (which follows, with its output), early, too late, lost."""

SETTLE: Final = (
    COMMON
    + """
for _, asked in ipairs(A.items) do
  local task, due, attempt, token, server = unpack(asked, 1, 5)
  local keep_until, outcome, reason, took, count, last, detail, output, fresh, nobody = unpack(asked, 6, 15)
  local row, text = read(task, field_of(due, attempt))
  local gone = pruned(task)
  if row and (row[OUTCOME] ~= '' or row[TOKEN] ~= token or fresh == '1') then
    give('row', text, output_of(task, field_of(due, attempt)))
  elseif not row and (outcome == 'lost' or (gone and tonumber(due) <= gone)
      or (nobody == '1' and tonumber(due) <= epoch)) then
    give('none')
  else
    row = row or {A.version, str(now), '', task, due, attempt, token, server, keep_until, 'schedule'}
    if tonumber(keep_until) > tonumber(row[KEEP_UNTIL]) then row[KEEP_UNTIL] = keep_until end
    row[OUTCOME], row[REASON], row[ENDED], row[TOOK] = outcome, reason, str(now), took
    row[COUNT], row[LAST], row[DETAIL] = count, last, detail
    give('row', write(row), output)
    if output ~= '' then call('HSET', P .. 'out', field_of(due, attempt) .. ':' .. task, output) end
    if last ~= '' then move('pruned:' .. task, tonumber(last)) end
  end
end
"""
    + END
)

ACQUIRE: Final = (
    COMMON
    + """
for _, asked in ipairs(A.items) do
  local key, token, owner, ttl, before, after, slots, note, notice = unpack(asked)
  local quiet_until = epoch + tonumber(A.longest)
  local forgotten = before == '' or tonumber(before) <= epoch
  if forgotten and now < quiet_until and notice == '0' then
    give('store_lost', str(quiet_until))
  elseif before ~= '' and now < tonumber(before) then
    give('early')
  elseif after ~= '' and now > tonumber(after) then
    give('too_late')
  else
    local found, fence = holders(key)
    local mine, first, taken = nil, nil, {}
    for _, lease in ipairs(found) do
      taken[tonumber(lease[7])] = true
      if lease[2] == token then mine = lease end
      if not first or tonumber(lease[5]) < tonumber(first[5]) then first = lease end
    end
    if mine then
      prolong(mine, ttl, note)
    elseif #found >= tonumber(slots) then
      give('held', first[3], first[5])
    else
      local slot = 0
      while taken[slot] do slot = slot + 1 end
      local next_fence = '0'
      if slots == '1' then next_fence = str(math.max(fence + 1, now)) end
      local lease = {key, token, owner, str(now), later(ttl), next_fence, str(slot), note}
      hold(lease)
      give('lease', cjson.encode(lease))
    end
  end
end
"""
    + END
)

RENEW: Final = (
    COMMON
    + """
for _, asked in ipairs(A.items) do
  local key, token, slot = unpack(asked)
  local mine, instead
  for _, lease in ipairs((holders(key))) do
    if lease[2] == token then mine = lease end
    if lease[7] == slot then instead = lease end
  end
  if mine then
    prolong(mine, A.ttl)
  elseif instead then
    give('held', instead[3], instead[5])
  else
    give('too_late')
  end
end
"""
    + END
)

RELEASE: Final = (
    COMMON
    + """
for _, asked in ipairs(A.items) do
  local key, token = unpack(asked)
  local done = '0'
  for _, lease in ipairs((holders(key))) do
    if lease[2] == token then
      call('HDEL', P .. 'held:' .. key, lease[7])
      keep(key)
      done = '1'
    end
  end
  give(done)
end
"""
    + END
)

ADVANCE: Final = (
    COMMON
    + """
for _, asked in ipairs(A.items) do
  give(str(move(asked[1], tonumber(asked[2]), A.first)))
end
"""
    + END
)
