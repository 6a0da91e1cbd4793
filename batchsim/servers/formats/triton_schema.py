"""Triton's ModelConfig and the messages within it, as `text_proto.Schema` takes them."""

from batchsim.servers.formats.text_proto import Schema

ENUMS = {
    "DataType": "TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8 TYPE_INT16 "
    "TYPE_INT32 TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16",
    "ModelInstanceGroup.Kind": "KIND_AUTO KIND_GPU KIND_CPU KIND_MODEL",
    "ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind": "KIND_NVDLA",
    "ModelInput.Format": "FORMAT_NONE FORMAT_NHWC FORMAT_NCHW",
    "BatchInput.Kind": "BATCH_ELEMENT_COUNT BATCH_ACCUMULATED_ELEMENT_COUNT "
    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO BATCH_MAX_ELEMENT_COUNT_AS_SHAPE BATCH_ITEM_SHAPE "
    "BATCH_ITEM_SHAPE_FLATTEN",
    "BatchOutput.Kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
    "ModelOptimizationPolicy.ModelPriority": "PRIORITY_DEFAULT PRIORITY_MAX PRIORITY_MIN",
    "ModelQueuePolicy.TimeoutAction": "REJECT DELAY",
    "ModelSequenceBatching.Control.Kind": "CONTROL_SEQUENCE_START CONTROL_SEQUENCE_READY "
    "CONTROL_SEQUENCE_END CONTROL_SEQUENCE_CORRID",
}

MESSAGES = {
    "ModelRateLimiter": "resources:*ModelRateLimiter.Resource priority:uint32",
    "ModelRateLimiter.Resource": "name:string global:bool count:uint32",
    "ModelInstanceGroup": "name:string kind:ModelInstanceGroup.Kind count:int32 "
    "rate_limiter:ModelRateLimiter gpus:*int32 secondary_devices:*ModelInstanceGroup.SecondaryDevice "
    "profile:*string passive:bool host_policy:string",
    "ModelInstanceGroup.SecondaryDevice": "device_id:int64 "
    "kind:ModelInstanceGroup.SecondaryDevice.SecondaryDeviceKind",
    "ModelTensorReshape": "shape:*int64",
    "ModelInput": "name:string data_type:DataType format:ModelInput.Format dims:*int64 "
    "reshape:ModelTensorReshape is_shape_tensor:bool allow_ragged_batch:bool optional:bool "
    "is_non_linear_format_io:bool",
    "ModelOutput": "name:string data_type:DataType dims:*int64 reshape:ModelTensorReshape "
    "label_filename:string is_shape_tensor:bool is_non_linear_format_io:bool",
    "BatchInput": "kind:BatchInput.Kind target_name:*string data_type:DataType source_input:*string",
    "BatchOutput": "target_name:*string kind:BatchOutput.Kind source_input:*string",
    "ModelVersionPolicy": "latest:ModelVersionPolicy.Latest@policy_choice "
    "all:ModelVersionPolicy.All@policy_choice specific:ModelVersionPolicy.Specific@policy_choice",
    "ModelVersionPolicy.Latest": "num_versions:uint32",
    "ModelVersionPolicy.All": "",
    "ModelVersionPolicy.Specific": "versions:*int64",
    "ModelOptimizationPolicy": "graph:ModelOptimizationPolicy.Graph "
    "priority:ModelOptimizationPolicy.ModelPriority cuda:ModelOptimizationPolicy.Cuda "
    "execution_accelerators:ModelOptimizationPolicy.ExecutionAccelerators "
    "input_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer "
    "output_pinned_memory:ModelOptimizationPolicy.PinnedMemoryBuffer "
    "gather_kernel_buffer_threshold:uint32 eager_batching:bool",
    "ModelOptimizationPolicy.Graph": "level:int32",
    "ModelOptimizationPolicy.Cuda": "graphs:bool busy_wait_events:bool "
    "graph_spec:*ModelOptimizationPolicy.Cuda.GraphSpec output_copy_stream:bool",
    "ModelOptimizationPolicy.Cuda.GraphSpec": "batch_size:int32 "
    "input:map<string,ModelOptimizationPolicy.Cuda.GraphSpec.Shape> "
    "graph_lower_bound:ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound",
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape": "dim:*int64",
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound": "batch_size:int32 "
    "input:map<string,ModelOptimizationPolicy.Cuda.GraphSpec.Shape>",
    "ModelOptimizationPolicy.ExecutionAccelerators": "gpu_execution_accelerator:"
    "*ModelOptimizationPolicy.ExecutionAccelerators.Accelerator "
    "cpu_execution_accelerator:*ModelOptimizationPolicy.ExecutionAccelerators.Accelerator",
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator": "name:string parameters:map<string,string>",
    "ModelOptimizationPolicy.PinnedMemoryBuffer": "enable:bool",
    "ModelQueuePolicy": "timeout_action:ModelQueuePolicy.TimeoutAction default_timeout_microseconds:uint64 "
    "allow_timeout_override:bool max_queue_size:uint32",
    "ModelDynamicBatching": "preferred_batch_size:*int32 max_queue_delay_microseconds:uint64 "
    "preserve_ordering:bool priority_levels:uint64 default_priority_level:uint64 "
    "default_queue_policy:ModelQueuePolicy priority_queue_policy:map<uint64,ModelQueuePolicy>",
    "ModelSequenceBatching": "direct:ModelSequenceBatching.StrategyDirect@strategy_choice "
    "oldest:ModelSequenceBatching.StrategyOldest@strategy_choice max_sequence_idle_microseconds:uint64 "
    "control_input:*ModelSequenceBatching.ControlInput state:*ModelSequenceBatching.State "
    "iterative_sequence:bool",
    "ModelSequenceBatching.Control": "kind:ModelSequenceBatching.Control.Kind int32_false_true:*int32 "
    "fp32_false_true:*float bool_false_true:*bool data_type:DataType",
    "ModelSequenceBatching.ControlInput": "name:string control:*ModelSequenceBatching.Control",
    "ModelSequenceBatching.InitialState": "data_type:DataType dims:*int64 zero_data:bool@state_data "
    "data_file:string@state_data name:string",
    "ModelSequenceBatching.State": "input_name:string output_name:string data_type:DataType dims:*int64 "
    "initial_state:*ModelSequenceBatching.InitialState use_same_buffer_for_input_output:bool "
    "use_growable_memory:bool",
    "ModelSequenceBatching.StrategyDirect": "max_queue_delay_microseconds:uint64 "
    "minimum_slot_utilization:float",
    "ModelSequenceBatching.StrategyOldest": "max_candidate_sequences:int32 preferred_batch_size:*int32 "
    "max_queue_delay_microseconds:uint64 preserve_ordering:bool",
    "ModelEnsembling": "step:*ModelEnsembling.Step max_inflight_requests:uint32",
    "ModelEnsembling.Step": "model_name:string model_version:int64 input_map:map<string,string> "
    "output_map:map<string,string> model_namespace:string",
    "ModelParameter": "string_value:string",
    "ModelWarmup": "name:string batch_size:uint32 inputs:map<string,ModelWarmup.Input> count:uint32",
    "ModelWarmup.Input": "data_type:DataType dims:*int64 zero_data:bool@input_data_type "
    "random_data:bool@input_data_type input_data_file:string@input_data_type",
    "ModelOperations": "op_library_filename:*string",
    "ModelTransactionPolicy": "decoupled:bool",
    "ModelRepositoryAgents": "agents:*ModelRepositoryAgents.Agent",
    "ModelRepositoryAgents.Agent": "name:string parameters:map<string,string>",
    "ModelResponseCache": "enable:bool",
    "ModelMetrics": "metric_control:*ModelMetrics.MetricControl",
    "ModelMetrics.MetricControl": "metric_identifier:ModelMetrics.MetricControl.MetricIdentifier "
    "histogram_options:ModelMetrics.MetricControl.HistogramOptions@metric_options",
    "ModelMetrics.MetricControl.MetricIdentifier": "family:string",
    "ModelMetrics.MetricControl.HistogramOptions": "buckets:*double",
    "ModelConfig": "name:string platform:string backend:string runtime:string "
    "version_policy:ModelVersionPolicy max_batch_size:int32 input:*ModelInput output:*ModelOutput "
    "batch_input:*BatchInput batch_output:*BatchOutput optimization:ModelOptimizationPolicy "
    "dynamic_batching:ModelDynamicBatching@scheduling_choice "
    "sequence_batching:ModelSequenceBatching@scheduling_choice "
    "ensemble_scheduling:ModelEnsembling@scheduling_choice instance_group:*ModelInstanceGroup "
    "default_model_filename:string cc_model_filenames:map<string,string> metric_tags:map<string,string> "
    "parameters:map<string,ModelParameter> model_warmup:*ModelWarmup model_operations:ModelOperations "
    "model_transaction_policy:ModelTransactionPolicy model_repository_agents:ModelRepositoryAgents "
    "response_cache:ModelResponseCache model_metrics:ModelMetrics",
}

SCHEMA = Schema(MESSAGES, ENUMS)
