module @jit_product attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["rows"=2, "cols"=4]> {stablehlo.mesh = {axes = [{name = "rows", size = 2 : i64}, {name = "cols", size = 4 : i64}]}}
  func.func public @main(%arg0: tensor<16x24xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"rows"}, {}]>}, %arg1: tensor<24x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"cols"}]>}) -> (tensor<16x32xf32> {jax.result_info = "result", sdy.sharding = #sdy.sharding<@mesh, [{"rows"}, {"cols"}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x24xf32>, tensor<24x32xf32>) -> tensor<16x32xf32>
    %1 = stablehlo.tanh %0 : tensor<16x32xf32>
    return %1 : tensor<16x32xf32>
  }
}
