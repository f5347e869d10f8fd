/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/calls.h"

#define TC_NCCL_BY_PROCESS true /* a rank is a process: the skew between ranks is what is looked for */
