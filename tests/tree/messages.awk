# SPDX-License-Identifier: Apache-2.0
# Prints "FILE: TEXT" for each message in C++ sources, as a reader would see it: {} for what it names, [a|b] for what it
# chooses between, the texts of constants in place of their names. A message is what a statement that throws, logs,
# refuses or returns a text has in quotes, or a row of a table of such texts.
BEGIN {
  RS = "\001"
  literal = "\"([^\"\\\\\n]|\\\\.)*\""
  starts = "throw [A-Za-z_:]+\\(|make_exception_ptr\\(|log\\(LogLevel::|[. ](refuse[a-z_]*|fail|fail_at)\\(|problem\\(|push_back\\(" \
           "|return |cause = |, kMistake,|, kHarmless,"
  tables = "constexpr [A-Za-z_:<>, 0-9]+ k(JsonMistakes|Advice|Exclusive|Rules|ForeignRules)(\\[\\])? = \\{"
}

# The length of the text or character in quotes at `at` of `s`; 0: something else is there.
function quoted(s, at,   rest) {
  rest = substr(s, at)
  if (substr(rest, 1, 1) == "\"") return match(rest, "^" literal) ? RLENGTH : 1
  if (rest !~ /^\047(\\.|[^\\])\047/) return 0
  return substr(rest, 2, 1) == "\\" ? 4 : 3
}

# The index behind the expression that begins at `at` of `s`: that of a ; or of a bracket that closes more than opens.
function end_of(s, at,   depth, c, n) {
  depth = 0
  while (at <= length(s)) {
    c = substr(s, at, 1)
    if ((n = quoted(s, at)) > 0) {
      at += n
      continue
    }
    if (c ~ /[({[]/) ++depth
    if (c ~ /[)}\]]/ && --depth < 0) return at
    if (c == ";" && depth == 0) return at
    ++at
  }
  return at
}

# The index of the first of the characters `wanted` in `s` from `at` that is in no brackets or quotes; 0: none.
function find_top(s, wanted, at,   depth, c, n) {
  depth = 0
  while (at <= length(s)) {
    c = substr(s, at, 1)
    if ((n = quoted(s, at)) > 0) {
      at += n
      continue
    }
    if (substr(s, at, 2) == "::") {
      at += 2
      continue
    }
    if (depth == 0 && index(wanted, c) > 0) return at
    if (c ~ /[({[]/) ++depth
    if (c ~ /[)}\]]/) --depth
    ++at
  }
  return 0
}

function trimmed(s) {
  gsub(/^[ \n]+|[ \n]+$/, "", s)
  return s
}

function inside(s) { return substr(s, index(s, "(") + 1, length(s) - index(s, "(") - 1) }

# Whether `s` is one call or pair of brackets from its first ( to its end.
function is_call(s) { return s ~ /^[A-Za-z_:]*\(/ && end_of(s, index(s, "(") + 1) == length(s) }

function has_text(s,   name) {
  if (index(s, "\"") > 0) return 1
  for (name in constants) if (s ~ ("(^|[^A-Za-z_])" name "([^A-Za-z_0-9]|$)")) return 1
  return 0
}

# The texts of the arguments, one after another, without codes and levels.
function joined(s, between,   at, part, text, all) {
  all = ""
  while (s != "") {
    at = find_top(s, ",", 1)
    part = trimmed(at == 0 ? s : substr(s, 1, at - 1))
    s = at == 0 ? "" : substr(s, at + 1)
    if (part ~ /^(ErrorCode|LogLevel)::/) continue
    text = render(part)
    all = all (all == "" ? "" : between) text
  }
  return all
}

function formatted(s,   at, format, out, value, begin, place) {
  at = find_top(s, ",", 1)
  if (at == 0) return render(s)
  format = render(trimmed(substr(s, 1, at - 1)))
  s = substr(s, at + 1)
  out = ""
  gsub(/\{\{/, "\002", format)
  gsub(/\}\}/, "\003", format)
  while (match(format, /\{[^{}]*\}/)) {
    begin = RSTART
    place = substr(format, RSTART, RLENGTH)
    value = "{}"
    if (s != "" && place !~ /^\{[0-9]/) {
      at = find_top(s, ",", 1)
      value = render(trimmed(at == 0 ? s : substr(s, 1, at - 1)))
      s = at == 0 ? "" : substr(s, at + 1)
    }
    out = out substr(format, 1, begin - 1) (value == "{}" ? place : value)
    format = substr(format, begin + length(place))
  }
  out = out format
  gsub("\002", "{", out)
  gsub("\003", "}", out)
  return out
}

function choice(a, b) {
  if (a == b) return a
  if (b ~ /^\[[^\[\]]*\]$/) b = substr(b, 2, length(b) - 2)
  return "[" a "|" b "]"
}

# From the ? at `at`: both sides, with choices inside of them.
function chosen(s, at,   rest, level, split_at, c) {
  rest = substr(s, at + 1)
  level = 0
  split_at = 0
  while ((split_at = find_top(rest, "?:", split_at + 1)) > 0) {
    c = substr(rest, split_at, 1)
    if (c == "?") ++level
    else if (level-- == 0) break
  }
  return choice(render(trimmed(substr(rest, 1, split_at - 1))), render(trimmed(substr(rest, split_at + 1))))
}

function render(s,   at, text, name, rest) {
  s = trimmed(s)
  if (s in constants) return constants[s]
  if (!has_text(s)) return "{}"
  if (s ~ /^\(/ && is_call(s)) return render(inside(s))
  if (s ~ /^\{/) return joined(substr(s, 2, length(s) - 2), ": ")
  if ((at = find_top(s, "?", 1)) > 0) return chosen(s, at)
  if ((at = find_top(s, "+", 1)) > 0) return render(substr(s, 1, at - 1)) render(substr(s, at + 1))
  if (s ~ /^"/) {
    text = ""
    while (match(s, "^" literal)) {
      text = text substr(s, 2, RLENGTH - 2)
      s = trimmed(substr(s, RLENGTH + 1))
    }
    return text
  }
  if (!is_call(s)) return "{}"
  name = substr(s, 1, index(s, "(") - 1)
  rest = inside(s)
  if (name == "fmt::format") return formatted(rest)
  if (name !~ /^std::/) sub(/^.*::/, "", name)
  if (name == "counted" || name == "plural") {
    text = joined(substr(rest, find_top(rest, ",", 1) + 1), "")
    sub(/y$/, "ie", text)
    return (name == "counted" ? "{} " : "") text "s"
  }
  if (name == "did_you_mean") {
    at = find_top(rest, ",", 1)
    return at == 0 ? " [(did you mean {}?)|]" : " ([did you mean {}?|" render(substr(rest, at + 1)) "])"
  }
  if (name == "with_advice") {
    at = find_top(rest, ",", 1)
    return render(substr(rest, 1, at - 1)) "\005(" render(substr(rest, at + 1)) ")"
  }
  if (name ~ /^(std::)?string(_view)?$|^Error$|^std::move$/) return joined(rest, ": ")
  if (name ~ /system_error$/) return system_text(rest)
  if ((text = helper_text(name, rest)) != "") return text
  return name ~ /^(refuse|bad|damaged|refused|unknown|failure|error_of)/ ? joined(rest, ": ") : "{}"
}

function system_text(s,   n, parts, at) {
  n = 0
  while (s != "") {
    at = find_top(s, ",", 1)
    parts[++n] = at == 0 ? s : substr(s, 1, at - 1)
    s = at == 0 ? "" : substr(s, at + 1)
  }
  return render(parts[2]) ": {errno} (" (n > 3 ? choice(render(parts[4]), "{advice}") : "{advice}") ")"
}

function statement_text(s,   at, text) {
  sub(/^[. ]/, "", s)
  if (s ~ /^return /) return render(substr(s, 8))
  if (s ~ /^cause = /) return render(substr(s, 9))
  if (s ~ /^, k(Mistake|Harmless),/) return "--{} has no effect: " render(substr(s, index(substr(s, 2), ",") + 2))
  if (s ~ /^throw /) s = substr(s, 7)
  at = index(s, "(")
  if ((text = helper_text(substr(s, 1, at - 1), substr(s, at + 1))) != "") return text
  if (s ~ /^[a-z_:]*system_error\(/) return system_text(substr(s, at + 1))
  return joined(substr(s, at + 1), ": ")
}

function show(text,   at) {
  if (text ~ /\004/ || (FILENAME, text) in shells || text ~ /^(\{\}: )*--\{\} has no effect: \{\}$/) return
  # with_advice() adds nothing to a text that has advice.
  if ((at = index(text, "\005")) > 0) {
    if (substr(text, at - 1, 1) == ")") text = substr(text, 1, at - 1)
    else sub("\005", " ", text)
  }
  gsub(/(\{\}(: )?){3,}/, "{}: {}: ", text)
  if (text ~ /[a-z][a-z]+[ ,:;{}]+[a-z][a-z]+/ && length(text) > 12) print FILENAME ": " text
}

# "Error bad_x(path, cause) { return Error(code, TEXT); }": what a call of it says, with \004N for its argument N.
function read_helpers(s,   name, params, n, at, part, body, saved, i) {
  while (match(s, "(Error|void) [a-z_]+\\([^(){};]*\\)( const)? \\{\n *(return|throw) (Error|system_error)\\(")) {
    part = substr(s, RSTART, RLENGTH)
    at = RSTART + RLENGTH
    sub(/^[A-Za-z]+ /, "", part)
    name = substr(part, 1, index(part, "(") - 1)
    params = substr(part, index(part, "(") + 1)
    params = substr(params, 1, index(params, ")") - 1)
    body = substr(s, at, end_of(s, at) - at)
    s = substr(s, at)
    split("", saved)
    n = split(params, saved, ",")
    for (i = 1; i <= n; ++i) {
      sub(/^.*[ *&\n]/, "", saved[i])
      constants[saved[i]] = "\004" i
    }
    body = part ~ /system_error\($/ ? system_text(body) : joined(body, ": ")
    for (i = 1; i <= n; ++i) delete constants[saved[i]]
    if (body !~ /\004/) continue
    helpers[FILENAME, name] = body
    gsub(/\004[0-9]/, "{}", body)
    sub("\005", " ", body)
    shells[FILENAME, body] = 1
    body = helpers[FILENAME, name]
    if ((name in helper_of) && helper_of[name] != body) helper_of[name] = ""
    else helper_of[name] = body
  }
}

# The text of a call of a helper; "" when it is none.
function helper_text(name, s,   text, n, at, value) {
  if ((FILENAME, name) in helpers) text = helpers[FILENAME, name]
  else if (name in helper_of) text = helper_of[name]
  else return ""
  n = 0
  while (s != "") {
    at = find_top(s, ",", 1)
    value = render(trimmed(at == 0 ? s : substr(s, 1, at - 1)))
    s = at == 0 ? "" : substr(s, at + 1)
    text = replaced(text, "\004" (++n), value)
  }
  return text
}

function replaced(text, old, new,   at, out) {
  out = ""
  while ((at = index(text, old)) > 0) {
    out = out substr(text, 1, at - 1) new
    text = substr(text, at + length(old))
  }
  return out text
}

# "const char* kName = "..." of a file.
function read_constants(s,   name, value) {
  split("", constants)
  while (match(s, "(const char\\*|std::string_view)( const)? k[A-Z][A-Za-z0-9]* =[ \n]*(" literal "[ \n]*)+;")) {
    value = substr(s, RSTART, RLENGTH)
    s = substr(s, RSTART + RLENGTH)
    match(value, / k[A-Z][A-Za-z0-9]* =/)
    name = substr(value, RSTART + 1, RLENGTH - 3)
    constants[name] = render(trimmed(substr(value, RSTART + RLENGTH, length(value) - RSTART - RLENGTH)))
  }
}

# What a row of the table `name` says, whose texts are `t[1..n]`.
function row_text(name, t, n) {
  if (name ~ /JsonMistakes/) return "cannot read JSON: {}: line {}, column {}: " t[2] " (" t[3] ")"
  if (name ~ /Exclusive/) return "--" t[1] " and --" t[2] " " t[3] " (give one)"
  if (name ~ /Advice/) return "{} is not an option (" t[2] ")"
  return n == 2 && t[2] ~ / / ? t[1] ": " t[2] : ""
}

function read_tables(s,   end, rows, row, name, texts, n, at, text) {
  while (match(s, tables)) {
    name = substr(s, RSTART, RLENGTH)
    s = substr(s, RSTART + RLENGTH)
    end = end_of(s, 1)
    rows = substr(s, 1, end - 1)
    while ((end = index(rows, "{")) > 0) {
      rows = substr(rows, end + 1)
      end = end_of(rows, 1)
      row = substr(rows, 1, end - 1)
      rows = substr(rows, end + 1)
      n = 0
      while (row != "") {
        at = find_top(row, ",", 1)
        text = render(trimmed(at == 0 ? row : substr(row, 1, at - 1)))
        row = at == 0 ? "" : substr(row, at + 1)
        if (text != "{}") texts[++n] = text
      }
      show(row_text(name, texts, n))
    }
  }
}

{
  gsub(/\n *\/\/[^\n]*/, "")
  gsub(/  \/\/[^\n"]*\n/, "\n")
  split("", constants)
  read_constants($0)
  if (pass == 1) {
    read_helpers($0)
    next
  }
  read_tables($0)
  rest = $0
  while (match(rest, starts)) {
    begin = RSTART
    open = RLENGTH
    found = substr(rest, begin, open)
    end = end_of(rest, begin + open)
    statement = substr(rest, begin, end - begin)
    rest = substr(rest, begin + open)
    if (has_text(statement)) show(statement_text(statement))
  }
}
