// SPDX-License-Identifier: Apache-2.0
/* Handles of GPUs and who they are. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "call.h"

static nvmlReturn_t hand_out(struct call *call, int gpu, int mig, nvmlDevice_t *device)
{
	nvmlReturn_t code = call_enter_section(call, gpu, mig);

	if (code == NVML_SUCCESS)
		*device = device_handle(gpu, mig);
	return code;
}

static nvmlReturn_t by_index(const char *function, unsigned int index, nvmlDevice_t *device)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);

	if (code == NVML_SUCCESS && (!device || index >= call.scenario->gpu_count))
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		code = hand_out(&call, (int)index, -1, device);
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return by_index(__func__, index, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	return by_index(__func__, index, device);
}

/* Find the device whose `key` is `wanted`; a lost one is found, and says then that it is lost. */
static nvmlReturn_t by_text(const char *function, const char *key, const char *wanted, nvmlDevice_t *device)
{
	struct call call;
	nvmlReturn_t code = call_begin(&call, function);
	int found = 0, gpu = -1, mig = -1;

	if (code == NVML_SUCCESS && (!wanted || !device))
		code = NVML_ERROR_INVALID_ARGUMENT;
	for (size_t i = 1; code == NVML_SUCCESS && !found && i < call.scenario->section_count; i++) {
		const struct section *section = &call.scenario->sections[i];
		const char *text = section_text(section, key, NULL);

		if (text && !strcasecmp(text, wanted)) {
			found = 1;
			gpu = section->gpu;
			mig = section->mig;
		}
	}
	if (code == NVML_SUCCESS)
		code = found ? hand_out(&call, gpu, mig, device) : NVML_ERROR_NOT_FOUND;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return by_text(__func__, "uuid", uuid, device);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return by_text(__func__, "serial", serial, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return by_text(__func__, "pci", bus_id, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	return by_text(__func__, "pci", bus_id, device);
}

#define DEVICE_TEXT(function, key)                                                                                     \
	API nvmlReturn_t function(nvmlDevice_t device, char *buffer, unsigned int length)                              \
	{                                                                                                              \
		return read_text(__func__, device, key, buffer, length);                                               \
	}

DEVICE_TEXT(nvmlDeviceGetName, "name")
DEVICE_TEXT(nvmlDeviceGetUUID, "uuid")
DEVICE_TEXT(nvmlDeviceGetSerial, "serial")
DEVICE_TEXT(nvmlDeviceGetVbiosVersion, "vbios")
DEVICE_TEXT(nvmlDeviceGetBoardPartNumber, "part_number")

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, __func__, device);

	if (code == NVML_SUCCESS && !index)
		code = NVML_ERROR_INVALID_ARGUMENT;
	if (code == NVML_SUCCESS)
		*index = (unsigned int)(call.section->mig < 0 ? call.section->gpu : call.section->mig);
	return call_end(&call, code);
}

/* Fill a PCI address from "DDDDDDDD:BB:DD.F". */
static nvmlReturn_t fill_pci(const struct call *call, const char *bus_id, nvmlPciInfo_t *pci)
{
	memset(pci, 0, sizeof(*pci));
	if (!bus_id || sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
		return NVML_ERROR_NOT_SUPPORTED;
	snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain & 0xFFFFFFFFu, pci->bus & 0xFFu,
		 pci->device & 0xFFu);
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", pci->domain & 0xFFFFu,
		 pci->bus & 0xFFu, pci->device & 0xFFu);
	call_uint(call, "pci.device_id", &pci->pciDeviceId); /* 0 when it does not say */
	call_uint(call, "pci.subsystem_id", &pci->pciSubSystemId);
	return NVML_SUCCESS;
}

static nvmlReturn_t pci_info(const char *function, nvmlDevice_t device, const char *key, nvmlPciInfo_t *pci)
{
	struct call call;
	nvmlReturn_t code = call_begin_device(&call, function, device);

	if (code == NVML_SUCCESS)
		code = pci ? fill_pci(&call, section_text(call.section, key, NULL), pci) : NVML_ERROR_INVALID_ARGUMENT;
	return call_end(&call, code);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return pci_info(__func__, device, "pci", pci);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	char key[32];

	snprintf(key, sizeof(key), "nvlink.%u.remote", link);
	return pci_info(__func__, device, key, pci);
}
