/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#pragma once

#include "../include/calls.h"

#define TC_CUDA_BY_PROCESS false /* the ledger tells threads apart; series are by cgroup */
