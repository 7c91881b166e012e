-- Requests of wrk: searches for one code, whose bodies are the lines of a file. Arguments: the file, the token.
local requests = {}
local place = 0

function init(arguments)
  local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. arguments[2] }
  for line in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("POST", "/v1/search", headers, line)
  end
end

function request()
  place = place % #requests + 1
  return requests[place]
end
