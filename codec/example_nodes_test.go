package codec_test

import (
	"fmt"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// The tree of nodes of a Pod. Tree, which is for tests, prints a line for each node; "some
// nodes" marks an object or array of which reads have not seen all.
func Example_nodes() {
	var o codec.Object
	o.Reset([]byte(`{
  "metadata": {"name": "web", "labels": {"app": "web", "old": "x"}},
  "spec": {
    "containers": [
      {"name": "nginx", "image": "nginx:1.29"},
      {"name": "log", "image": "log:2"}
    ],
    "restartPolicy": "Always"
  }
}`))

	fmt.Println("After a read, there are nodes for what the read passed:")
	fmt.Println(o.Get("spec", "containers", "1", "name").String())
	fmt.Print(o.Tree())

	fmt.Println("\nEdits change and add nodes, and mark their parents:")
	o.SetString("log:3", "spec", "containers", "1", "image")
	o.SetString("Always", "spec", "containers", "1", "imagePullPolicy")
	o.Remove("metadata", "labels", "old")
	fmt.Print(o.Tree())

	fmt.Println("\nEdits follows the marks:")
	for edit := range o.Edits() {
		fmt.Printf("%s: %q, now %q\n", edit.Pointer, edit.Before.JSON(), edit.After.JSON())
	}
	fmt.Printf("\nThe patch: %s\n", diff.AppendPatch(nil, &o))
	// Output:
	// After a read, there are nodes for what the read passed:
	// log
	// document (some nodes)
	//   metadata (no nodes)
	//   spec (some nodes)
	//     containers (some nodes)
	//       [0] (no nodes)
	//       [1] (some nodes)
	//         name = "log"
	//
	// Edits change and add nodes, and mark their parents:
	// document (edited) (some nodes)
	//   metadata (edited) (some nodes)
	//     name = "web"
	//     labels (edited)
	//       app = "web"
	//       old (removed)
	//   spec (edited) (some nodes)
	//     containers (edited) (some nodes)
	//       [0] (no nodes)
	//       [1] (edited)
	//         name = "log"
	//         image = "log:3" (was "log:2")
	//         imagePullPolicy = "Always" (added)
	//
	// Edits follows the marks:
	// /metadata/labels/old: "\"x\"", now ""
	// /spec/containers/1/image: "\"log:2\"", now "\"log:3\""
	// /spec/containers/1/imagePullPolicy: "", now "\"Always\""
	//
	// The patch: [{"op":"remove","path":"/metadata/labels/old"},{"op":"replace","path":"/spec/containers/1/image","value":"log:3"},{"op":"add","path":"/spec/containers/1/imagePullPolicy","value":"Always"}]
}
