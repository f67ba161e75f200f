"""Energy by the GPU's own counter (NVML), where there is one.

The counter is the device's, so it includes whatever else runs there. CPUs have no counter that an ordinary
user may read: the report says so, and nothing is estimated.
"""

import importlib
from typing import Any

import torch

NO_GPU = "no energy: a CPU reports none"
IN_WORKERS = "no energy: the workers' counters are not read"
NO_LIBRARY = "no energy: install nvidia-ml-py (pip install 'kv-reuse-lab[energy]') to read the GPU's counter"


class Meter:
    """Reads a device's energy counter.

    Args:
        device: where the model runs; None in other processes.
    """

    def __init__(self, device: torch.device | None) -> None:
        self.absent = ""
        self.library: Any = None
        self.handle: Any = None
        if device is None:
            self.absent = IN_WORKERS
            return
        if device.type != "cuda":
            self.absent = NO_GPU if device.type == "cpu" else f"no energy: {device.type} reports none"
            return
        try:
            self.library = importlib.import_module("pynvml")
            self.library.nvmlInit()
            # NVML counts all devices of the machine, torch those it may see: the bus tells them apart.
            facts: Any = torch.cuda.get_device_properties(device)
            bus = f"{facts.pci_domain_id:08x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"
            self.handle = self.library.nvmlDeviceGetHandleByPciBusId(bus.encode())
            self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle)
        except ImportError:
            self.absent = NO_LIBRARY
        except Exception as error:  # NVML has errors of its own; the run goes on without energy
            self.absent = f"no energy: the GPU's counter cannot be read ({type(error).__name__})"

    def joules(self) -> float | None:
        """What the device has used since its driver was loaded; None without a counter."""
        if self.absent:
            return None
        return float(self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1e3
