"""The Lua scripts of the Redis store that read its history and prune it: slice by slice, for others wait.

Each tells where it has come to, and the next one goes on from there.
"""

from __future__ import annotations

from typing import Final

from rota.stores.redis.scripts import COMMON, END

ROWS: Final = (
    COMMON
    + """
-- Newest first, until enough are found and everything due at the same instant is there; at most A.slice a
-- call. A.place: which of the tasks, the member (of all tasks: the due instant) we are at, how many due then
-- are behind us, how many were found of the task, when the last of them is due.
local limit, since = tonumber(A.limit), A.since == '' and '-inf' or A.since
local left, place, task_given = tonumber(A.slice), A.place, false
local function wanted(row)
  return (A.outcome == '' or row[OUTCOME] == A.outcome) and (not A.server or row[SERVER] == A.server)
    and (not A.open_only or row[OUTCOME] == '')
end
local function gather(page, parts_of)
  local count, last = tonumber(place[4]), place[5]
  local at, beside = place[2], tonumber(place[3])
  for _, member in ipairs(page) do
    local field, task, due = parts_of(member)
    if count >= limit and due ~= last then return true end
    if task_given then at = member elseif due == at then beside = beside + 1 else at, beside = due, 1 end
    local row, text = read(task, field)
    if row and wanted(row) then
      give(text, output_of(task, field))
      count, last = count + 1, due
    end
  end
  if #page < left then
    left = left - #page
    return true
  end
  left = 0
  place = {place[1], at, tostring(beside), tostring(count), last}
  return false
end
local done = limit == 0
if not done and #A.tasks == 0 then
  local upto = place[2] == '' and '+inf' or tostring(place[2])
  done = gather(
    call('ZREVRANGEBYSCORE', P .. 'all', upto, since, 'LIMIT', tonumber(place[3]), left),
    function(member)
      local field, task = row_of(member)
      return field, task, string.match(field, '^%d+')
    end
  )
elseif not done then
  task_given, done = true, true
  for i = tonumber(place[1]), #A.tasks do
    local task = A.tasks[i]
    local from, to = after(task, A.since ~= '' and tonumber(A.since) - 1 or nil)
    if place[2] ~= '' then to = '(' .. place[2] end
    place[1] = tostring(i)
    if left == 0 or not gather(
      call('ZREVRANGEBYLEX', P .. 'names', to, from, 'LIMIT', 0, left),
      function(name)
        local field = field_in(task, name)
        return field, task, string.match(field, '^%d+')
      end
    ) then
      done = false
      break
    end
    place = {tostring(i + 1), '', '0', '0', ''}
  end
end
answers = {done and {} or place, answers}
"""
    + END
)

_FORGET: Final = """
local kept_until, left, gone = now - tonumber(A.allowance), tonumber(A.slice), 0
local function forget(task, field, row) -- whether it is gone
  if row and (row[OUTCOME] == '' or tonumber(row[KEEP_UNTIL]) >= kept_until) then return false end
  if row then
    move('pruned:' .. task, tonumber(row[DUE]))
    gone = gone + 1
  end
  drop(task, field)
  return true
end
"""

PRUNE: Final = (
    COMMON
    + _FORGET
    + """
-- At most A.slice rows a call. A.kept: how many that ended first stay where they are.
local kept = tonumber(A.kept)
local page = call('ZRANGEBYSCORE', P .. 'ended', '-inf', '(' .. A.before, 'LIMIT', kept, left)
for _, everywhere in ipairs(page) do
  local field, task = row_of(everywhere)
  if not forget(task, field, (read(task, field))) then kept = kept + 1 end
end
answers = {tostring(gone), tostring(kept), #page < left and '0' or '1'}
"""
    + END
)

THIN: Final = (
    COMMON
    + _FORGET
    + """
-- Of each task all but its newest, at most A.slice rows a call. A.place: how many final rows of the first
-- task stay though they are too many, the last name behind us, the tasks; none are named at the start.
local stay, at, tasks = tonumber(A.place[1]), A.place[2], {}
for i = 3, #A.place do tasks[#tasks + 1] = A.place[i] end
if #tasks == 0 then tasks = call('SMEMBERS', P .. 'tasks') end
local open = {}
for _, everywhere in ipairs(call('SMEMBERS', P .. 'open')) do
  local _, task = row_of(everywhere)
  open[task] = (open[task] or 0) + 1
end
local place = {}
for i, task in ipairs(tasks) do
  local from, to = after(task)
  local excess = call('ZLEXCOUNT', P .. 'names', from, to) - (open[task] or 0) - tonumber(A.most) - stay
  if at ~= '' then from = '(' .. at end
  if excess > 0 and left > 0 then
    for _, name in ipairs(call('ZRANGEBYLEX', P .. 'names', from, to, 'LIMIT', 0, left)) do
      if excess == 0 then break end
      left = left - 1
      local field = field_in(task, name)
      local row = read(task, field)
      if forget(task, field, row) then
        excess = excess - 1
      else
        at = name
        if row[OUTCOME] ~= '' then stay, excess = stay + 1, excess - 1 end
      end
    end
    if left > 0 then excess = 0 end
  end
  if left == 0 and (excess > 0 or tasks[i + 1]) then
    local next_one = i
    if excess <= 0 then stay, at, next_one = 0, '', i + 1 end
    place = {tostring(stay), at}
    for j = next_one, #tasks do place[#place + 1] = tasks[j] end
    break
  end
  stay, at = 0, ''
end
answers = {tostring(gone), place}
"""
    + END
)
