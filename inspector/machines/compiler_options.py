"""The options of XLA that a layout may have: a table of names with their values, and the check of both.

XLA has about 1,500 options. Some name folders to write to, files to read, and the folder of programs that a
compile starts: `xla_gpu_cuda_data_dir=DIR` starts `DIR/bin/ptxas`. A layout can come from a link or a file of
somebody else, so it may only have options of this table. None of them takes a path, a command, an address, a
regular expression or free text: an option that XLA reads as text has a closed set of words here. Numbers are
bounded, so that no option makes a compile endless.

The command line takes other options with `--unsafe-compiler-options`. They never become part of a layout.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from inspector.core.errors import InvalidInput, shown

# Name and value of each option, as text.
Options = tuple[tuple[str, str], ...]

UNSAFE_FLAG = "--unsafe-compiler-options"
# Has the unsafe options of a worker process, as JSON. A process passes it on to no other process.
UNSAFE_VARIABLE = "SHARDING_INSPECTOR_UNSAFE_COMPILER_OPTIONS"
# XLA starts `ptxas` from this folder. Its default is `cuda_sdk_lib` in the current folder, which can be of
# somebody else. JAX sets the folder of an installed CUDA package for each compile.
NO_CUDA_FOLDER = "--xla_gpu_cuda_data_dir=/dev/null"
UNSAFE = "unsafe-compiler-options"  # the code of the finding

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?([eE]-?[0-9]{1,2})?")
_SWITCH = ("true", "false")
_SIMILAR = 3  # names in an error


@dataclass(frozen=True)
class Option:
    """The allowed values of one option.

    Attributes:
      words: The allowed words. Those of `true` and `false` may be in any case. Empty for a number.
      least, most: The bounds of a number.
      whole: Whether the number must be a whole one.
      unknown_to: Versions of JAX whose compilers do not know the option.
      prefix: What `XLA_FLAGS` allows to leave out at the beginning of a word. JAX does not.
    """

    words: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    whole: bool = True
    unknown_to: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def allowed(self) -> str:
        """Return the allowed values in words.

        Example:
          >>> OPTIONS["xla_backend_optimization_level"].allowed
          'a whole number from 0 to 3'
        """
        if self.words:
            return f"one of {', '.join(self.words)}" if len(self.words) > 1 else self.words[0]
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.least:,} to {self.most:,}"

    @property
    def example(self) -> str:
        """Return one allowed value."""
        return self.words[0] if self.words else str(max(1, self.least))

    def allows(self, value: str) -> bool:
        """Return whether a text is an allowed value."""
        if self.words:
            return value in self.words or (value.lower() in _SWITCH and value.lower() in self.words)
        pattern = _WHOLE if self.whole else _NUMBER
        if not value.isascii() or not pattern.fullmatch(value):
            return False
        return self.least <= float(value) <= self.most


def _whole(least: int, most: int) -> Option:
    return Option(least=least, most=most)


def _words(*names: str) -> Option:
    return Option(words=names)


def _only_in(version: str, option: Option = Option(words=_SWITCH)) -> Option:
    others = tuple(other for other in ("0.10", "0.12") if other != version)
    return replace(option, unknown_to=others)


_ON = Option(words=_SWITCH)
_AUTO = _words("true", "false", "AUTO", "ENABLED", "DISABLED")  # an enum of the TPU compiler
_MAYBE = _words("true", "false", "auto")  # a value of the TPU compiler that it can choose itself
_COUNT = _whole(0, 1_000_000)
_BYTES = _whole(0, 2**40)
_KIB = _whole(0, 2**30)
_MIB = _whole(0, 2**30)
_PERCENT = _whole(0, 10_000)  # the most of a published run
_FACTOR = Option(most=1_000, whole=False)
_WINDOW = _whole(1, 65_536)  # instructions of a fusion, or registers
_COLLECTIVE_MATMUL = _words("none", "pre_spmd", "post_spmd", "post_spmd_conservative")
_MODE = "COLLECTIVE_PIPELINING_MODE_"
_PIPELINING = Option(
    (*(f"{_MODE}{mode}" for mode in ("DEFAULT", "OFF", "ON", "EXPLICIT")), "default", "off", "on"),
    prefix=_MODE,
)
# Published for other versions of the compilers. Those of neither version know them.
_UNKNOWN = Option(words=_SWITCH, unknown_to=("0.10", "0.12"))

# Of published training runs, of MaxText (benchmarks/xla_flags_library.py, src/maxtext/configs), and of
# tpu-recipes. tests/machines/recipe_options.json lists the names.
_PUBLISHED = {
    "xla_always_enable_all_gather_2d_asymmetric": _ON,
    "xla_collective_optimize_constant_table": _AUTO,
    "xla_disable_hlo_passes": _words("rematerialization"),
    "xla_enable_all_gather_3d_emitter": _ON,
    "xla_enable_async_all_gather": _AUTO,
    "xla_enable_async_all_reduce": _AUTO,
    "xla_enable_transpose_trace": _ON,
    "xla_jf_enable_producer_consumer_multi_output_fusion": _ON,
    "xla_jf_fusion_max_instruction_count_for_window_config": _WINDOW,
    "xla_jf_spmd_threshold_for_windowed_einsum_mib": _MIB,
    "xla_latency_hiding_scheduler_rerun": _whole(0, 10),  # each one schedules the program again
    "xla_lhs_prioritize_async_depth_over_stall": _AUTO,
    "xla_max_concurrent_async_all_gathers": _COUNT,
    "xla_max_concurrent_async_reduce_scatters": _COUNT,
    "xla_max_concurrent_host_send_recv": _COUNT,
    "xla_sc_disable_megacore_partitioning": _ON,
    "xla_sc_disjoint_spmem": _UNKNOWN,
    "xla_sc_enable_instruction_fusion": _MAYBE,
    "xla_should_add_loop_invariant_op_in_chain": _AUTO,
    "xla_should_allow_loop_variant_parameter_in_chain": _AUTO,
    "xla_tpu_accumulate_into_mrb": _ON,
    "xla_tpu_aggressive_opt_barrier_removal": _AUTO,
    "xla_tpu_all_gather_collective_matmul_mode": _COLLECTIVE_MATMUL,
    "xla_tpu_ars_combiner_threshold_in_bytes": _BYTES,
    "xla_tpu_assign_all_reduce_scatter_layout": _ON,
    "xla_tpu_async_copy_bandwidth_scaling_factor": _FACTOR,
    "xla_tpu_bf16_emission_mode": _words("NATIVE_EMISSION"),
    "xla_tpu_data_parallel_opt_different_sized_ops": _ON,
    "xla_tpu_dot_dot_fusion_duplicated": _ON,
    "xla_tpu_dvfs_p_state": _whole(0, 15),
    "xla_tpu_enable_3d_reduce_scatter_decomposer": _MAYBE,
    "xla_tpu_enable_ag_backward_pipelining": _ON,
    "xla_tpu_enable_all_experimental_scheduler_features": _ON,
    # Adds markers to a profile, and writes nothing itself.
    "xla_tpu_enable_all_gather_offload_tracing": _AUTO,
    "xla_tpu_enable_all_reduce_offload_tracing": _AUTO,
    "xla_tpu_enable_async_collective_fusion": _ON,
    "xla_tpu_enable_async_collective_fusion_fuse_all_gather": _AUTO,
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": _ON,
    "xla_tpu_enable_async_collective_fusion_multiple_steps": _ON,
    "xla_tpu_enable_async_collective_fusion_with_mosaic_custom_call": _ON,
    "xla_tpu_enable_async_collective_merger": _ON,
    "xla_tpu_enable_collective_pipeliner": _MAYBE,
    "xla_tpu_enable_concurrent_sparse_core_offloading": _MAYBE,
    "xla_tpu_enable_data_parallel_all_reduce_opt": _ON,
    "xla_tpu_enable_domain_passes": _ON,
    "xla_tpu_enable_dot_strength_reduction": _ON,
    "xla_tpu_enable_flash_attention": _ON,
    "xla_tpu_enable_ici_ar_pipelining": _MAYBE,
    "xla_tpu_enable_ici_rs_pipelining": _MAYBE,
    "xla_tpu_enable_latency_hiding_layer_scheduler": _MAYBE,
    "xla_tpu_enable_layer_scheduler_for_dependent_collectives": _MAYBE,
    "xla_tpu_enable_multi_compute_overlap_in_layer_scheduler": _MAYBE,
    "xla_tpu_enable_net_router_in_all_gather": _ON,
    "xla_tpu_enable_offloading_gather_to_sparsecore": _ON,
    "xla_tpu_enable_reduce_scatter_offload_tracing": _AUTO,
    "xla_tpu_enable_scheduler_memory_pressure_tracking": _AUTO,
    "xla_tpu_enable_sdc_checker": _ON,
    "xla_tpu_enable_sparse_core_collective_aggregator": _MAYBE,
    "xla_tpu_enable_sparse_core_collective_offload_2d_all_gather": _MAYBE,
    "xla_tpu_enable_sparse_core_collective_offload_3d_all_gather": _MAYBE,
    "xla_tpu_enable_sparse_core_collective_offload_all_gather": _AUTO,
    "xla_tpu_enable_sparse_core_collective_offload_all_reduce": _AUTO,
    "xla_tpu_enable_sparse_core_collective_offload_nd_reduce_scatter": _MAYBE,
    "xla_tpu_enable_sparse_core_collective_offload_reduce_scatter": _AUTO,
    "xla_tpu_enable_sparse_core_offload_queuing_in_lhs": _MAYBE,
    "xla_tpu_enable_sparse_core_reduce_scatter_v2": _MAYBE,
    "xla_tpu_enable_sublane_major_scaling_bitcast_fusion": _MAYBE,
    "xla_tpu_enable_sunk_dcn_allreduce_done_with_host_reduction": _ON,
    "xla_tpu_enable_tpu_custom_call_scoped_vmem_adjustments": _MAYBE,
    "xla_tpu_enable_tree_use_collective_pipeliner": _ON,
    "xla_tpu_host_transfer_overlap_limit": _COUNT,
    "xla_tpu_ici_rs_pipelining_threshold_kib": _KIB,
    "xla_tpu_impure_enable_packed_bf16_math_ops": _UNKNOWN,
    "xla_tpu_impure_use_lmr_on_gxc": _UNKNOWN,
    "xla_tpu_iova_dma_chunk_size_bytes": _BYTES,
    "xla_tpu_memory_bound_loop_optimizer_options": _words("enabled:true", "enabled:false"),
    "xla_tpu_mosaic_fusion": _ON,
    "xla_tpu_num_sparse_cores_for_gather_offloading": _whole(0, 16),
    "xla_tpu_order_dot_after_layout": _ON,
    "xla_tpu_overlap_compute_collective_tc": _ON,
    "xla_tpu_pcie_bandwidth_multiplier": _FACTOR,
    "xla_tpu_prefer_async_allgather_to_allreduce": _ON,
    "xla_tpu_prefetch_interval_picker_size_override": _BYTES,
    "xla_tpu_reduce_scatter_collective_matmul_mode": _COLLECTIVE_MATMUL,
    "xla_tpu_relayout_group_size_threshold_for_reduce_scatter": _COUNT,
    "xla_tpu_rwb_fusion": _ON,
    "xla_tpu_scheduler_percent_shared_memory_limit": _PERCENT,
    "xla_tpu_scoped_vmem_limit_kib": _whole(1_024, 2**30),
    "xla_tpu_sdc_check_halt_on_detection": _ON,
    "xla_tpu_sdc_check_repeat_count": _whole(0, 10),
    "xla_tpu_sdc_replicate_llo": _ON,
    "xla_tpu_sparse_core_all_gather_latency_multiplier": _FACTOR,
    "xla_tpu_sparse_core_all_reduce_offload_min_size_in_bytes": _BYTES,
    "xla_tpu_sparse_core_reduce_scatter_latency_multiplier": _FACTOR,
    "xla_tpu_use_bundle_aware_cost_model_for_fusions": _AUTO,
    "xla_tpu_use_enhanced_launch_barrier": _UNKNOWN,
    "xla_tpu_use_minor_sharding_for_major_trivial_input": _ON,
    "xla_tpu_use_single_sparse_core_for_all_gather_offload": _MAYBE,
    "xla_tpu_use_tc_device_shape_on_sc": _ON,
}
# Of MaxText for inference (src/maxtext/inference), with which JetStream served models on TPUs.
_INFERENCE = {
    "xla_jf_auto_cross_replica_sharding": _ON,
    "xla_jf_conv_input_fusion": _ON,
    "xla_jf_conv_output_fusion": _ON,
    "xla_jf_conv_reshape_fusion": _ON,
    "xla_jf_enable_multi_output_fusion": _ON,
    "xla_tpu_alternate_memory_benefit_scaling_factor_for_large_buffers": _words("SQRT", "NO_SCALE"),
    "xla_tpu_copy_elision_analysis_allowance": _COUNT,
    "xla_tpu_copy_fusion_pad_unpad_ratio": _FACTOR,
    "xla_tpu_copy_insertion_use_region_analysis_limit": _COUNT,
    "xla_tpu_dot_dot_fusion_separable_convs_only": _ON,
    "xla_tpu_enable_aggressive_broadcast_priority_update": _ON,
    "xla_tpu_enable_aggressive_loop_fusion_layout_opt": _ON,
    "xla_tpu_enable_copy_fusion": _ON,
    "xla_tpu_enable_cross_program_prefetch_freeing": _ON,
    "xla_tpu_enable_experimental_fusion_cost_model": _ON,
    "xla_tpu_enable_multi_level_input_dot_dot_fusion": _ON,
    "xla_tpu_enable_multi_level_nested_dot_fusion": _ON,
    "xla_tpu_enable_multi_level_nested_loop_fusion": _ON,
    "xla_tpu_enable_multi_level_output_dot_dot_fusion": _ON,
    "xla_tpu_enforce_prefetch_fifo_order": _ON,
    "xla_tpu_input_conv_multi_users": _ON,
    "xla_tpu_layout_use_dot_grouping": _ON,
    "xla_tpu_licm_size_inflation_ratio": _FACTOR,
    "xla_tpu_msa_inefficient_use_to_copy_ratio": _FACTOR,
    "xla_tpu_nd_short_transfer_max_chunks": _whole(-1, 65_536),
    "xla_tpu_prefer_latch_optimized_rhs_layouts": _AUTO,
    "xla_tpu_reduce_loop_fusion_dup_with_unfusable_user": _ON,
    "xla_tpu_scavenge_vmem_for_fusions": _ON,
    "xla_tpu_use_lp_llo_scheduler_for_dot_dot_fusions": _ON,
    "xla_tpu_use_repeated_instance_for_preferred_prefetch_time": _ON,
    "xla_tpu_vector_load_fusion_window": _WINDOW,
    "xla_tpu_vector_store_fusion_window": _WINDOW,
}
# More of the same kinds: collectives, their overlap and fusion, and memory of TPUs.
_TPU = {
    "xla_enable_async_collective_permute": _AUTO,
    "xla_enable_async_reduce_scatter_fusion": _AUTO,
    "xla_jf_crs_combiner_threshold_in_bytes": _BYTES,
    "xla_jf_rematerialization_percent_shared_memory_limit": _PERCENT,
    "xla_max_concurrent_async_all_reduces": _COUNT,
    "xla_max_concurrent_async_collective_permutes": _COUNT,
    "xla_tpu_choose_faster_windowed_einsum_over_mem": _ON,
    "xla_tpu_dcn_max_overlap_estimation": _FACTOR,
    "xla_tpu_decompose_all_gather_einsum": _ON,
    "xla_tpu_decompose_einsum_reduce_scatter": _ON,
    "xla_tpu_dot_dot_fusion": _ON,
    "xla_tpu_enable_all_reduce_scatter_fusion": _ON,
    "xla_tpu_enable_async_all_to_all": _ON,
    "xla_tpu_enable_async_collective_fusion_fuse_reduce_scatter": _ON,
    "xla_tpu_enable_latency_hiding_scheduler": _ON,
    "xla_tpu_enable_megacore_fusion": _AUTO,
    "xla_tpu_enable_windowed_einsum_for_all_gather": _ON,
    "xla_tpu_enable_windowed_einsum_for_reduce_scatter": _ON,
    "xla_tpu_megacore_fusion_allow_ags": _ON,
    "xla_tpu_nested_dot_fusion": _ON,
    "xla_tpu_rematerialization_min_size_in_bytes": _BYTES,
    "xla_tpu_spmd_bidirectional_windowed_einsum": _ON,
    "xla_tpu_spmd_rng_bit_generator_unsafe": _ON,
    "xla_tpu_spmd_threshold_for_allgather_cse": _COUNT,
    "xla_tpu_spmd_unroll_windowed_einsum": _ON,
}
# Of the GPU guides of JAX (gpu_performance_tips) and of NVIDIA (JAX-Toolbox, GPU performance), and more of
# the same kinds. Left out: options that unroll loops without a bound, and that search longer for kernels.
_GPU = {
    "xla_gpu_all_gather_combine_threshold_bytes": _BYTES,
    "xla_gpu_all_reduce_combine_threshold_bytes": _BYTES,
    "xla_gpu_all_reduce_blueconnect_num_devices_per_host": _whole(0, 1_024),
    "xla_gpu_autotune_level": _whole(0, 4),
    "xla_gpu_collective_permute_combine_threshold_bytes": _BYTES,
    "xla_gpu_collective_permute_decomposer_threshold": _BYTES,
    "xla_gpu_cublas_fallback": _ON,
    "xla_gpu_cudnn_gemm_fusion_level": _whole(0, 3),
    "xla_gpu_deterministic_ops": _ON,
    "xla_gpu_disable_async_collectives": _words(
        *("ALLCOLLECTIVES", "ALLGATHER", "ALLREDUCE", "ALLTOALL", "COLLECTIVEBROADCAST"),
        *("COLLECTIVEPERMUTE", "REDUCESCATTER"),
    ),
    "xla_gpu_dot_merger_threshold_mb": _whole(0, 1_000_000),
    "xla_gpu_enable_all_gather_combine_by_dim": _ON,
    "xla_gpu_enable_analytical_latency_estimator": _ON,
    "xla_gpu_enable_analytical_sol_latency_estimator": _ON,
    "xla_gpu_enable_async_collectives": _UNKNOWN,
    "xla_gpu_enable_command_buffer": _words("FUSION"),
    "xla_gpu_enable_cublaslt": _ON,
    "xla_gpu_enable_cudnn_layer_norm": _ON,
    "xla_gpu_enable_dynamic_slice_fusion": _ON,
    "xla_gpu_enable_fast_min_max": _ON,
    "xla_gpu_enable_highest_priority_async_stream": _ON,
    "xla_gpu_enable_host_memory_offloading": _ON,
    "xla_gpu_enable_latency_hiding_scheduler": _ON,
    "xla_gpu_enable_pipelined_all_gather": _only_in("0.10"),
    "xla_gpu_enable_pipelined_all_reduce": _only_in("0.10"),
    "xla_gpu_enable_pipelined_collectives": _only_in("0.10"),
    "xla_gpu_enable_pipelined_host_offloading": _ON,
    "xla_gpu_enable_pipelined_p2p": _ON,
    "xla_gpu_enable_pipelined_reduce_scatter": _only_in("0.10"),
    "xla_gpu_enable_reassociation_for_converted_ar": _ON,
    "xla_gpu_enable_reduce_scatter_combine_by_dim": _ON,
    "xla_gpu_enable_triton_gemm": _ON,
    "xla_gpu_enable_triton_softmax_fusion": _UNKNOWN,
    "xla_gpu_enable_while_loop_double_buffering": _ON,
    "xla_gpu_enable_while_loop_reduce_scatter_code_motion": _ON,
    "xla_gpu_experimental_enable_alltoall_windowed_einsum": _ON,
    "xla_gpu_experimental_parallel_collective_overlap_limit": _whole(1, 1_000),
    "xla_gpu_ftz": _ON,
    "xla_gpu_memory_limit_slop_factor": _whole(1, 1_000),
    "xla_gpu_multi_streamed_windowed_einsum": _ON,
    "xla_gpu_operand_bytes_threshold_for_windowed_einsum": _whole(-1, 2**40),
    "xla_gpu_pipeline_all_gather": _only_in("0.12", _PIPELINING),
    "xla_gpu_pipeline_all_reduce": _only_in("0.12", _PIPELINING),
    "xla_gpu_pipeline_reduce_scatter": _only_in("0.12", _PIPELINING),
    "xla_gpu_reduce_scatter_combine_threshold_bytes": _BYTES,
    "xla_gpu_shard_autotuning": _ON,
    "xla_gpu_threshold_for_windowed_einsum_mib": _MIB,
    "xla_gpu_triton_gemm_any": _ON,
}
# Of all compilers, and of the one for CPUs.
_CPU = {
    "xla_allow_excess_precision": _ON,
    "xla_backend_optimization_level": _whole(0, 3),
    "xla_cpu_collective_call_terminate_timeout_seconds": _whole(1, 3_600),
    "xla_cpu_collective_call_warn_stuck_seconds": _whole(1, 3_600),
    "xla_cpu_copy_insertion_use_region_analysis": _ON,
    "xla_cpu_enable_concurrency_optimized_scheduler": _ON,
    "xla_cpu_enable_fast_math": _ON,
    "xla_cpu_enable_fast_min_max": _ON,
    "xla_cpu_fast_math_honor_division": _ON,
    "xla_cpu_fast_math_honor_functions": _ON,
    "xla_cpu_fast_math_honor_infs": _ON,
    "xla_cpu_fast_math_honor_nans": _ON,
    "xla_cpu_multi_thread_eigen": _ON,
    "xla_cpu_parallel_codegen_split_count": _whole(1, 256),  # one thread each
    "xla_cpu_prefer_vector_width": _whole(128, 512),
    "xla_cpu_strict_dot_conv_math": _ON,
    "xla_cpu_use_fusion_emitters": _only_in("0.10"),
    "xla_cpu_use_xnnpack": _ON,
    "xla_llvm_disable_expensive_passes": _ON,
    "xla_sdy_export_all_reduce_scatter": _ON,
    "xla_spmd_enable_dynamic_slice_collective_broadcast": _only_in("0.12"),
    "xla_while_loop_all_reduce_dus_code_motion_max_size_bytes": _only_in("0.12", _BYTES),
}

# Flags of the same recipes that no layout has, by the beginning of their names, and why.
NO_OPTIONS = {
    "megascale_": "is an option of the transport between slices, which does not change the compiled program",
    "xla_dump_": "writes files, and does not change the compiled program",
    "xla_force_host_platform_device_count": "is the number of emulated devices, which --mesh gives",
    "xla_gpu_enable_while_loop_unrolling": "can make a compile endless",
}

OPTIONS: dict[str, Option] = _PUBLISHED | _INFERENCE | _TPU | _GPU | _CPU


def check(options: Iterable[tuple[str, str]]) -> None:
    """Check that all options are in the table, with an allowed value.

    Example:
      >>> check([("xla_tpu_scoped_vmem_limit_kib", "98304")])

    Raises:
      InvalidInput: one is not. The message names it and the allowed ones.
    """
    for name, value in options:
        option = OPTIONS.get(name)
        others = f"the command line takes others with {UNSAFE_FLAG}"
        if reason := next((why for start, why in NO_OPTIONS.items() if name.startswith(start)), None):
            raise InvalidInput(f"compiler_options has {shown(name)}, which {reason}: leave it out; {others}")
        if option is None:
            raise InvalidInput(
                f"compiler_options has {shown(f'{name}={value}')}, but must have options of XLA that are "
                f"known to be safe, such as {', '.join(_similar(name))}; {others}"
            )
        if not option.allows(value):
            raise InvalidInput(
                f"compiler_options has {shown(f'{name}={value}', 120)}, but the value must be "
                f"{option.allowed}; {others}"
            )


def with_colons(name: str, value: str) -> str:
    """Return the allowed value of which a link has dots for colons; the value itself if there is none.

    Example:
      >>> with_colons("xla_tpu_memory_bound_loop_optimizer_options", "enabled.true")
      'enabled:true'
    """
    words = OPTIONS[name].words if name in OPTIONS else ()
    return next((word for word in words if word.replace(":", ".") == value), value)


def _similar(name: str) -> list[str]:
    """Return the names of the table that share most words with a name.

    `difflib` takes 0.02 s for as many names, and a file of runs can have thousands of unknown ones.
    """
    words = set(name.split("_"))

    def unlike(known: str) -> tuple[int, int]:
        return -len(words.intersection(known.split("_"))), abs(len(known) - len(name))

    return sorted(OPTIONS, key=unlike)[:_SIMILAR]


def arguments(options: Iterable[tuple[str, str]]) -> dict[str, str | bool]:
    """Return options as JAX takes them: the compiler for CPUs refuses `true` as text.

    Example:
      >>> arguments([("xla_cpu_enable_fast_math", "true"), ("xla_backend_optimization_level", "1")])
      {'xla_cpu_enable_fast_math': True, 'xla_backend_optimization_level': '1'}
      >>> arguments([("xla_gpu_pipeline_all_gather", "on")])
      {'xla_gpu_pipeline_all_gather': 'COLLECTIVE_PIPELINING_MODE_ON'}
    """
    switches = {"true": True, "false": False}
    return {name: switches.get(value.lower(), _in_full(name, value)) for name, value in options}


def _in_full(name: str, value: str) -> str:
    prefix = OPTIONS[name].prefix if name in OPTIONS else ""
    return value if value.startswith(prefix) else f"{prefix}{value.upper()}"


def text(options: Iterable[tuple[str, str]]) -> str:
    """Return options for reading.

    Example:
      >>> text([("xla_a", "1"), ("xla_b", "2")])
      'xla_a=1,xla_b=2'
    """
    return ",".join(f"{name}={value}" for name, value in options)


def unsafe_variables(options: Options) -> tuple[tuple[str, str], ...]:
    """Return the environment variables of a worker that compiles with unsafe options, as (name, value).

    A worker keeps them until its end. So no request to a worker can contain unsafe options, and no
    other layout is compiled with them.
    """
    return ((UNSAFE_VARIABLE, json.dumps(options)),) if options else ()


def unsafe_options(environment: Mapping[str, str] = os.environ) -> Options:
    """Return the unsafe options of this worker process; empty in any other process."""
    plain = json.loads(environment.get(UNSAFE_VARIABLE, "[]"))
    return tuple((name, value) for name, value in plain)
