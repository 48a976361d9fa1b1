// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// What to do, in parentheses behind the cause of an error.
namespace strata {

// The cause with " (advice)" behind it, unless it ends with advice of its own.
std::string with_advice(const std::string& cause, std::string_view advice);

// What helps with most causes of an errno; system_error() says it when its caller says nothing.
// Empty for errors of networks, because only the caller knows who is at the other end.
const char* usual_advice(int errno_value);

// Whether the cause is that the process or the system has no more open files.
bool lacks_descriptors(int errno_value);

}  // namespace strata
