"""The rules that kvtool has, in the order of their codes."""

from __future__ import annotations

from onnx_kvtool.core.table import Table
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.rules.kv001_axis_is_batch import AxisIsBatch
from onnx_kvtool.lint.rules.kv002_axis_out_of_range import AxisOutOfRange
from onnx_kvtool.lint.rules.kv003_bad_mode import BadMode
from onnx_kvtool.lint.rules.kv004_rank_mismatch import RankMismatch
from onnx_kvtool.lint.rules.kv005_non_axis_dim_mismatch import NonAxisDimMismatch
from onnx_kvtool.lint.rules.kv006_dtype_mismatch import DtypeMismatch
from onnx_kvtool.lint.rules.kv007_update_longer_than_cache import UpdateLongerThanCache
from onnx_kvtool.lint.rules.kv008_linear_overflow import LinearOverflow
from onnx_kvtool.lint.rules.kv009_negative_write_index import NegativeWriteIndex
from onnx_kvtool.lint.rules.kv010_write_indices_dtype import WriteIndicesDtype
from onnx_kvtool.lint.rules.kv011_write_indices_shape import WriteIndicesShape
from onnx_kvtool.lint.rules.kv012_opset_too_old import OpsetTooOld
from onnx_kvtool.lint.rules.kv013_present_decl_mismatch import PresentDeclMismatch
from onnx_kvtool.lint.rules.kv101_past_has_other_consumer import PastHasOtherConsumer
from onnx_kvtool.lint.rules.kv102_past_scattered_twice import PastScatteredTwice
from onnx_kvtool.lint.rules.kv103_past_not_graph_input import PastNotGraphInput
from onnx_kvtool.lint.rules.kv104_present_not_graph_output import PresentNotGraphOutput
from onnx_kvtool.lint.rules.kv105_past_present_name_pairing import PastPresentNamePairing
from onnx_kvtool.lint.rules.kv106_past_present_io_mismatch import PastPresentIoMismatch
from onnx_kvtool.lint.rules.kv107_layers_disagree_shape import LayersDisagreeShape
from onnx_kvtool.lint.rules.kv108_dim_param_inconsistent import DimParamInconsistent
from onnx_kvtool.lint.rules.kv110_key_value_index_mismatch import KeyValueIndexMismatch
from onnx_kvtool.lint.rules.kv112_decode_without_write_indices import DecodeWithoutWriteIndices
from onnx_kvtool.lint.rules.kv113_cache_without_nonpad_seqlen import CacheWithoutNonpadSeqlen
from onnx_kvtool.lint.rules.kv114_nonpad_with_past import NonpadWithPast
from onnx_kvtool.lint.rules.kv117_axis_differs_from_layout import AxisDiffersFromLayout
from onnx_kvtool.lint.rules.kv201_scatternd_rank import ScatterndRank
from onnx_kvtool.lint.rules.kv202_scatterelements_shape import ScatterelementsShape
from onnx_kvtool.lint.rules.kv203_scatter_duplicate_indices import ScatterDuplicateIndices
from onnx_kvtool.lint.rules.kv204_scatter_index_out_of_bounds import ScatterIndexOutOfBounds
from onnx_kvtool.lint.rules.kv205_scatternd_reduction_attr_trt import ScatterndReductionAttrTrt
from onnx_kvtool.lint.rules.kv206_scatter_dtype_unsupported import ScatterDtypeUnsupported
from onnx_kvtool.lint.rules.kv207_raisable_pattern import RaisablePattern
from onnx_kvtool.lint.rules.kv208_decomposed_attention import DecomposedAttention
from onnx_kvtool.lint.rules.kv209_growing_cache import GrowingCache
from onnx_kvtool.lint.rules.kv301_ort_not_in_place import OrtNotInPlace
from onnx_kvtool.lint.rules.kv302_ort_dtype import OrtDtype
from onnx_kvtool.lint.rules.kv303_trt_mode import TrtMode
from onnx_kvtool.lint.rules.kv304_trt_layout import TrtLayout
from onnx_kvtool.lint.rules.kv305_trt_volume import TrtVolume
from onnx_kvtool.lint.rules.kv306_trt_attention_form import TrtAttentionForm
from onnx_kvtool.lint.rules.kv307_ort_attention_nonpad import OrtAttentionNonpad
from onnx_kvtool.lint.rules.kv308_no_kernel import NoKernel
from onnx_kvtool.lint.rules.kv309_version_too_new import VersionTooNew
from onnx_kvtool.lint.rules.kv310_known_limit import KnownLimit
from onnx_kvtool.lint.rules.kv311_size_not_fixed import SizeNotFixed
from onnx_kvtool.lint.rules.md400_unreadable_file import UnreadableFile
from onnx_kvtool.lint.rules.md401_ir_too_old_for_opset import IrTooOldForOpset
from onnx_kvtool.lint.rules.md402_duplicate_opset_import import DuplicateOpsetImport
from onnx_kvtool.lint.rules.md403_unused_initializer import UnusedInitializer
from onnx_kvtool.lint.rules.md404_unused_input_or_dead_node import UnusedInputOrDeadNode
from onnx_kvtool.lint.rules.md405_duplicate_node_name import DuplicateNodeName
from onnx_kvtool.lint.rules.md406_proto_over_2gb import ProtoOver2gb
from onnx_kvtool.lint.rules.md408_unknown_version import UnknownVersion
from onnx_kvtool.lint.rules.md409_missing_opset_import import MissingOpsetImport
from onnx_kvtool.lint.rules.md410_unused_suppression import UnusedSuppression
from onnx_kvtool.lint.rules.md411_missing_ir_version import MissingIrVersion
from onnx_kvtool.lint.rules.md412_unused_opset_import import UnusedOpsetImport
from onnx_kvtool.lint.rules.md413_empty_graph import EmptyGraph
from onnx_kvtool.lint.rules.md420_undefined_input import UndefinedInput
from onnx_kvtool.lint.rules.md421_undefined_output import UndefinedOutput
from onnx_kvtool.lint.rules.md422_unsorted_nodes import UnsortedNodes
from onnx_kvtool.lint.rules.md423_duplicate_input import DuplicateInput
from onnx_kvtool.lint.rules.md424_unnamed_input import UnnamedInput
from onnx_kvtool.lint.rules.md425_duplicate_initializer import DuplicateInitializer
from onnx_kvtool.lint.rules.md426_unnamed_initializer import UnnamedInitializer
from onnx_kvtool.lint.rules.md427_shadowed_value import ShadowedValue
from onnx_kvtool.lint.rules.md428_duplicate_value_info import DuplicateValueInfo
from onnx_kvtool.lint.rules.md429_duplicate_attribute import DuplicateAttribute
from onnx_kvtool.lint.rules.md430_missing_op_type import MissingOpType
from onnx_kvtool.lint.rules.md431_empty_node import EmptyNode
from onnx_kvtool.lint.rules.md432_missing_graph_name import MissingGraphName
from onnx_kvtool.lint.rules.md433_untyped_interface import UntypedInterface
from onnx_kvtool.lint.rules.md435_trailing_empty_output import TrailingEmptyOutput
from onnx_kvtool.lint.rules.md436_duplicate_metadata import DuplicateMetadata
from onnx_kvtool.lint.rules.md437_unknown_field import UnknownField
from onnx_kvtool.lint.rules.md438_lost_quantization_annotation import LostQuantizationAnnotation
from onnx_kvtool.lint.rules.md440_duplicate_function import DuplicateFunction
from onnx_kvtool.lint.rules.md441_recursive_function import RecursiveFunction
from onnx_kvtool.lint.rules.md442_duplicate_parameter import DuplicateParameter
from onnx_kvtool.lint.rules.md443_deep_call_chain import DeepCallChain
from onnx_kvtool.lint.rules.md444_unnamed_function import UnnamedFunction
from onnx_kvtool.lint.rules.md450_bad_dims import BadDims
from onnx_kvtool.lint.rules.md451_tensor_data_length import TensorDataLength
from onnx_kvtool.lint.rules.md452_undefined_element_type import UndefinedElementType
from onnx_kvtool.lint.rules.md453_tensor_data_field import TensorDataField
from onnx_kvtool.lint.rules.md454_bad_sparse_tensor import BadSparseTensor
from onnx_kvtool.lint.rules.md455_attribute_value_field import AttributeValueField
from onnx_kvtool.lint.rules.md456_misdeclared_constant import MisdeclaredConstant
from onnx_kvtool.lint.rules.md457_unnamed_opaque_type import UnnamedOpaqueType
from onnx_kvtool.lint.rules.on601_unknown_operator import UnknownOperator
from onnx_kvtool.lint.rules.on602_unknown_attribute import UnknownAttribute
from onnx_kvtool.lint.rules.on603_attribute_type import AttributeType
from onnx_kvtool.lint.rules.on604_attribute_value import AttributeValue
from onnx_kvtool.lint.rules.on605_wrong_arity import WrongArity
from onnx_kvtool.lint.rules.on606_missing_input import MissingInput
from onnx_kvtool.lint.rules.on607_element_type import ElementType
from onnx_kvtool.lint.rules.on608_unimported_domain import UnimportedDomain
from onnx_kvtool.lint.rules.on609_deprecated_operator import DeprecatedOperator
from onnx_kvtool.lint.rules.on610_missing_attribute import MissingAttribute
from onnx_kvtool.lint.rules.on611_type_conflict import TypeConflict
from onnx_kvtool.lint.rules.on612_missing_output import MissingOutput
from onnx_kvtool.lint.rules.on613_ir_feature import IrFeature
from onnx_kvtool.lint.rules.on614_function_opset import FunctionOpset
from onnx_kvtool.lint.rules.on615_shape_conflict import ShapeConflict
from onnx_kvtool.lint.rules.on616_scale_shape import ScaleShape
from onnx_kvtool.lint.rules.on617_unbound_parameter import UnboundParameter
from onnx_kvtool.lint.rules.xd501_external_missing import ExternalMissing
from onnx_kvtool.lint.rules.xd502_external_escape import ExternalEscape
from onnx_kvtool.lint.rules.xd503_external_symlink import ExternalSymlink
from onnx_kvtool.lint.rules.xd504_external_range import ExternalRange
from onnx_kvtool.lint.rules.xd506_external_misaligned import ExternalMisaligned
from onnx_kvtool.lint.rules.xd508_external_bad_key import ExternalBadKey

__all__ = ["RULES"]

_RULES: tuple[type[Rule], ...] = (
    # KV0: the contract of the operator
    AxisIsBatch,
    AxisOutOfRange,
    BadMode,
    RankMismatch,
    NonAxisDimMismatch,
    DtypeMismatch,
    UpdateLongerThanCache,
    LinearOverflow,
    NegativeWriteIndex,
    WriteIndicesDtype,
    WriteIndicesShape,
    OpsetTooOld,
    PresentDeclMismatch,
    # KV1: structure of caches
    PastHasOtherConsumer,
    PastScatteredTwice,
    PastNotGraphInput,
    PresentNotGraphOutput,
    PastPresentNamePairing,
    PastPresentIoMismatch,
    LayersDisagreeShape,
    DimParamInconsistent,
    KeyValueIndexMismatch,
    DecodeWithoutWriteIndices,
    CacheWithoutNonpadSeqlen,
    NonpadWithPast,
    AxisDiffersFromLayout,
    # KV2: scatters, and what could be native operators
    ScatterndRank,
    ScatterelementsShape,
    ScatterDuplicateIndices,
    ScatterIndexOutOfBounds,
    ScatterndReductionAttrTrt,
    ScatterDtypeUnsupported,
    RaisablePattern,
    DecomposedAttention,
    GrowingCache,
    # KV3: runtimes
    OrtNotInPlace,
    OrtDtype,
    TrtMode,
    TrtLayout,
    TrtVolume,
    TrtAttentionForm,
    OrtAttentionNonpad,
    NoKernel,
    VersionTooNew,
    KnownLimit,
    SizeNotFixed,
    # MD4: the container
    UnreadableFile,
    IrTooOldForOpset,
    DuplicateOpsetImport,
    UnusedInitializer,
    UnusedInputOrDeadNode,
    DuplicateNodeName,
    ProtoOver2gb,
    UnknownVersion,
    MissingOpsetImport,
    UnusedSuppression,
    MissingIrVersion,
    UnusedOpsetImport,
    EmptyGraph,
    UndefinedInput,
    UndefinedOutput,
    UnsortedNodes,
    DuplicateInput,
    UnnamedInput,
    DuplicateInitializer,
    UnnamedInitializer,
    ShadowedValue,
    DuplicateValueInfo,
    DuplicateAttribute,
    MissingOpType,
    EmptyNode,
    MissingGraphName,
    UntypedInterface,
    TrailingEmptyOutput,
    DuplicateMetadata,
    UnknownField,
    LostQuantizationAnnotation,
    DuplicateFunction,
    RecursiveFunction,
    DuplicateParameter,
    DeepCallChain,
    UnnamedFunction,
    BadDims,
    TensorDataLength,
    UndefinedElementType,
    TensorDataField,
    BadSparseTensor,
    AttributeValueField,
    MisdeclaredConstant,
    UnnamedOpaqueType,
    # XD5: external data
    ExternalMissing,
    ExternalEscape,
    ExternalSymlink,
    ExternalRange,
    ExternalMisaligned,
    ExternalBadKey,
    # ON6: use of operators
    UnknownOperator,
    UnknownAttribute,
    AttributeType,
    AttributeValue,
    WrongArity,
    MissingInput,
    ElementType,
    UnimportedDomain,
    DeprecatedOperator,
    MissingAttribute,
    TypeConflict,
    MissingOutput,
    IrFeature,
    FunctionOpset,
    ShapeConflict,
    ScaleShape,
    UnboundParameter,
)

RULES: Table[str, Rule] = Table("rule", ((rule.code, rule()) for rule in _RULES))
