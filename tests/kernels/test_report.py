"""What people are told of the kernels, at start and by `mtplx models`."""

from mtplx.kernels.report import Acceleration, KernelReport

NATIVE = KernelReport(True, isa="avx2", threads=4)


def test_before_a_model_is_loaded_only_the_machine_is_told() -> None:
    assert str(NATIVE) == "native, for avx2, threads: 4"


def test_a_loaded_models_layers_are_told_by_type() -> None:
    layers = Acceleration({"QuantizedLinear": 210, "RoPE": 30}, {"RMSNorm": 61}, ("RMSNorm",))
    report = KernelReport(True, isa="avx2", threads=4, layers=layers).with_decoder(None)
    assert str(report) == (
        "native, for avx2, threads: 4; layers made native: 210 QuantizedLinear, 30 RoPE; MLX's own: 61 RMSNorm; "
        "failed their check: RMSNorm; decoder layers run one by one"
    )


def test_fused_layers_are_told() -> None:
    fused = str(NATIVE.with_decoder("float16"))
    assert fused.endswith("; decoder layers run in one native call; keys and values are kept in float16")


def test_without_native_kernels_the_reason_is_told() -> None:
    assert str(KernelReport(False, "no compiler").with_decoder(None)) == "MLX's own: no compiler"
