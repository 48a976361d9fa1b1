// SPDX-License-Identifier: Apache-2.0
#include "engine/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "engine/report/chart.h"

namespace strata::report {
namespace {

// Colours 1 to 8 are told apart by people who see colours differently, too; 9 is for the rest.
constexpr std::string_view kLightColors[] = {"#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4",
                                             "#008300", "#4a3aa7", "#e34948", "#8a8984"};
constexpr std::string_view kDarkColors[] = {"#3987e5", "#d95926", "#199e70", "#c98500", "#d55181",
                                            "#35a035", "#9085e9", "#e66767", "#8a8984"};
constexpr std::string_view kLight =
    "--page:#f7f7f5;--card:#ffffff;--text:#1f1f1e;--soft:#63625e;--rule:#e3e2dd;";
constexpr std::string_view kDark =
    "--page:#141413;--card:#1e1e1c;--text:#f0efea;--soft:#a5a49e;--rule:#383734;";

constexpr std::string_view kStyle = R"(
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 2px}
.about{color:var(--soft);margin:0 0 10px;overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:16px;
margin-top:16px;min-width:0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(400px,1fr));gap:0 16px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;
margin-top:16px}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:10px 14px}
.tile b{display:block;font-size:19px;font-weight:600;white-space:nowrap}
.tile span,.tile small{color:var(--soft);font-size:13px;display:block}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
.axis path{stroke:var(--rule);fill:none}
svg text{fill:var(--soft)}
.x{text-anchor:middle}.y{text-anchor:end}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.area{stroke:var(--card);stroke-width:.4}
.bar{fill:none;stroke-width:14}
.legend{margin:6px 0 0;color:var(--soft);font-size:13px}
.legend span{margin-right:16px;white-space:nowrap}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 10px;border-bottom:1px solid var(--rule)}
th{color:var(--soft);font-weight:500;font-size:13px}
th:first-child,td:first-child{text-align:left;padding-left:0}
tr:last-child td{border-bottom:0}
.samples td{vertical-align:top}
.samples th:last-child,.samples td:last-child{text-align:left;width:100%;white-space:pre-wrap;
overflow-wrap:anywhere}
.share{display:flex;gap:2px;height:14px;background:var(--rule);border-radius:3px;
overflow:hidden;margin:4px 0 6px}
.share i{display:block}
)";

std::string palette(std::string_view other, std::span<const std::string_view> colors) {
  std::string text = std::string(other);
  for (size_t i = 0; i < colors.size(); ++i) text += fmt::format("--c{}:{};", i + 1, colors[i]);
  return text;
}

std::string styles() {
  std::string text = fmt::format(
      ":root{{color-scheme:light dark;{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}",
      palette(kLight, kLightColors), palette(kDark, kDarkColors));
  text += kStyle;
  for (size_t i = 1; i <= std::size(kLightColors); ++i) {
    text += fmt::format(
        ".s{0}{{stroke:var(--c{0})}}.f{0}{{fill:var(--c{0})}}"
        ".b{0}{{background:var(--c{0})}}\n",
        i);
  }
  return text;
}

}  // namespace

std::string page(std::string_view title, std::string_view html) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</"
      "html>\n",
      escaped(title), styles(), html);
}

std::string section(std::string_view heading, std::string_view about, std::string_view html) {
  const std::string sentence =
      about.empty() ? "" : fmt::format("<p class=\"about\">{}</p>\n", escaped(about));
  return fmt::format("<section>\n<h2>{}</h2>\n{}{}</section>\n", escaped(heading), sentence, html);
}

std::string tiles(const std::vector<Tile>& all) {
  std::string text = "<div class=\"tiles\">\n";
  for (const Tile& tile : all) {
    text += fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>\n",
                        escaped(tile.name), escaped(tile.value), escaped(tile.detail));
  }
  return text + "</div>\n";
}

std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  const auto line = [](const char* cell, const std::vector<std::string>& row) {
    std::string text = "<tr>";
    for (const std::string& one : row) text += fmt::format("<{0}>{1}</{0}>", cell, escaped(one));
    return text + "</tr>\n";
  };
  std::string text = "<div class=\"scroll\"><table>\n" + line("th", head);
  for (const auto& row : rows) text += line("td", row);
  return text + "</table></div>\n";
}

std::string bar(const std::vector<BarPart>& parts) {
  std::string text = "<div class=\"share\">";
  for (const BarPart& part : parts) {
    text += fmt::format("<i class=\"b{}\" style=\"width:{:.2f}%\" title=\"{}\"></i>", part.color,
                        100 * std::clamp(part.share, 0.0, 1.0), escaped(part.name));
  }
  return text + "</div>\n";
}

}  // namespace strata::report
