// Package closure is the second evaluator of CEL expressions. It evaluates checked
// expressions as cel-go's interpreter does, to the same value and the same cost, but without
// values on the heap: about six times as fast, and without an allocation for most expressions.
//
// It knows the expressions that policies mostly have. New returns nil for an expression with
// an unknown part. At a value that it does not know, and wherever the interpreter would have
// an error, an Evaluator gives up, and the interpreter evaluates the expression instead. So
// there are no error messages here, and a missing feature only costs time. A feature that is
// wrong changes decisions: everything here restates code of cel-go and of Kubernetes.
//
// # When cel-go or k8s.io/apiserver moves
//
// Read what changed in these files, and change the code named after them:
//
//   - cel-go interpreter/planner.go, attributes.go: how an expression is planned, and which
//     steps its paths have: build.go (constants), build_path.go
//   - cel-go interpreter/runtimecost.go, common/cost.go: what is counted, and how much:
//     frame.steps and frame.call where they are called, function.cost, calls/cost.go. What changes
//     there becomes the cost of older releases, as in before137
//   - cel-go interpreter/frame.go, interpretable.go (evalFold): how an evaluation is
//     interrupted: calls/loops.go
//   - cel-go parser/macro.go: what a macro expands to: build_fold.go, build_collect.go
//   - cel-go common/types: equality, order, sizes, iterators: build_logic.go, package view
//   - cel-go ext/strings.go, lists.go, sets.go, formatting.go, and k8s.io/apiserver
//     pkg/cel/library/regex.go, quantity.go: functions that package calls does itself
//   - k8s.io/apiserver pkg/cel/library/cost.go: which functions it counts: countable
//
// Then run the tests of package cel. These show a difference, each in values, errors and
// costs:
//
//   - TestKnown*: every construct that has a closure, on values of each type, stopped by the
//     limit of the cost at each step. A closure that is gone or gives up fails, too.
//   - TestSelected*, TestUpstreamUnknown: the constructs and their neighbours, against
//     kube-apiserver's package; expressions that have no closure in each place
//   - TestCalls*: the functions of package calls, against kube-apiserver's package
//   - TestValues*, TestClosuresGenerated, TestUpstreamGenerated: generated expressions on
//     recorded objects. Run them longer: go test ./internal/policy/cel -run Generated -cases
//     5000, and go test ./internal/policy/cel -fuzz FuzzClosures
//   - TestClosureLimit, TestClosuresInterrupted: the limit of the cost, and the context
//   - TestFunctions (in this package): the functions that a library adds, renames or removes
//
// The new functions and macros of a release have no closures until somebody writes them;
// nothing has to be done for them. To tell which evaluator a difference comes from, let only
// the interpreter evaluate: serve, review and the other commands have the flag
// --debug-cel-interpreter, and make test runs all tests of policies with it, too.
package closure
