// The Python module: what it was built for, and the functions of the other files once this processor can run them.
//
// Compiled for any processor, as is nanobind; the other files are not, so nothing of theirs may run before the check.
#include <mlx/version.h>
#include <nanobind/nanobind.h>

#include "machine.h"
#include "threads.h"

#define MTPLX_TEXT_OF(x) #x
#define MTPLX_TEXT(x) MTPLX_TEXT_OF(x)
#define MTPLX_MLX_VERSION \
  MTPLX_TEXT(MLX_VERSION_MAJOR) "." MTPLX_TEXT(MLX_VERSION_MINOR) "." MTPLX_TEXT(MLX_VERSION_PATCH)

namespace mtplx {
void bind_decoder(nanobind::module_& m);
void bind_dense(nanobind::module_& m);
void bind_gather(nanobind::module_& m);
void bind_timing(nanobind::module_& m);
void bind_linear(nanobind::module_& m);
void bind_matmul(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_activation(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_causal_attention(nanobind::module_& m);
void bind_norm(nanobind::module_& m);
void bind_rope(nanobind::module_& m);
void bind_row_buffers(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_softmax(nanobind::module_& m);
}

NB_MODULE(_native, m) {
  m.attr("MLX_VERSION") = MTPLX_MLX_VERSION;
  m.attr("ISA") = mtplx::isa();
  m.attr("RUNS_HERE") = mtplx::runs_here();
  if (!mtplx::runs_here()) return;

  m.def("num_threads", &mtplx::num_threads);
  m.def("set_num_threads", &mtplx::set_num_threads, nanobind::arg("num_threads"));
  m.attr("IS_QUICK_AT_INT16") = mtplx::is_quick_at_int16();
  m.attr("FLOAT_BYTES") = mtplx::float_bytes();
  mtplx::set_input_bytes(mtplx::float_bytes());
  m.def("input_bytes", &mtplx::input_bytes);
  m.def("set_input_bytes", &mtplx::set_input_bytes, nanobind::arg("num_bytes"));
  mtplx::bind_decoder(m);
  mtplx::bind_dense(m);
  mtplx::bind_gather(m);
  mtplx::bind_timing(m);
  mtplx::bind_linear(m);
  mtplx::bind_matmul(m);
  mtplx::bind_memory(m);
  mtplx::bind_activation(m);
  mtplx::bind_attention(m);
  mtplx::bind_causal_attention(m);
  mtplx::bind_norm(m);
  mtplx::bind_rope(m);
  mtplx::bind_row_buffers(m);
  mtplx::bind_sampling(m);
  mtplx::bind_softmax(m);
}
