package diff_test

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

func ExampleAppendPatch() {
	var o codec.Object
	o.Reset([]byte(`{"spec":{"containers":[{"name":"web","imagePullPolicy":"Always"},{"name":"log"}]}}`))
	for i := range o.Get("spec", "containers").Elements() {
		o.Set(`"Always"`, "spec", "containers", codec.Index(i), "imagePullPolicy")
	}
	fmt.Printf("%s\n", diff.AppendPatch(nil, &o))
	// Output: [{"op":"add","path":"/spec/containers/1/imagePullPolicy","value":"Always"}]
}

func ExampleTyped() {
	object := []byte(`{"metadata":{"name":"web"},"spec":{"fieldOfTomorrow":1}}`)
	var before, after corev1.Pod
	if err := json.Unmarshal(object, &before); err != nil {
		fmt.Println(err)
		return
	}
	before.DeepCopyInto(&after)
	after.Spec.HostNetwork = true

	var o codec.Object
	o.Reset(object)
	if err := diff.Typed(&o, &before, &after); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o.Root().JSON())
	fmt.Printf("%s\n", diff.AppendPatch(nil, &o))
	// Output:
	// {"metadata":{"name":"web"},"spec":{"fieldOfTomorrow":1,"hostNetwork":true}}
	// [{"op":"add","path":"/spec/hostNetwork","value":true}]
}

func ExampleDocuments() {
	patch, err := diff.Documents([]byte(`{"a":[1,2]}`), []byte(`{"a":[1,3]}`))
	fmt.Printf("%s %v\n", patch, err)
	// Output: [{"value":3,"op":"replace","path":"/a/1"}] <nil>
}
