package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

const exampleBody = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{
	"uid":"705ab4f5-6393-11e8",
	"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
	"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"ann"},
	"object":{"metadata":{"name":"web","labels":{"app":"web"}},
		"spec":{"containers":[{"name":"nginx","image":"nginx:1.29"},{"name":"log","image":"log:2"}]}}}}`

func ExampleReview() {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode([]byte(exampleBody)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Username(), r.Operation(), r.Resource().Resource, r.Namespace(), r.Name())
	r.Response.Allowed = true
	fmt.Printf("%s\n", r.AppendResponse(nil))
	// Output:
	// ann CREATE pods shop web
	// {"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"705ab4f5-6393-11e8","allowed":true}}
}

func ExampleReview_UserInfo() {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode([]byte(exampleBody)); err != nil {
		fmt.Println(err)
		return
	}
	for _, group := range r.UserInfo().Get("groups").Elements() {
		fmt.Println("group", group.String())
	}
	name := strings.Clone(r.Username()) // to keep it for longer than r
	fmt.Println(name)
	// Output: ann
}

func ExampleObject_Get() {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode([]byte(exampleBody)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Object.Get("metadata", "labels", "app").String())
	for i, container := range r.Object.Get("spec", "containers").Elements() {
		fmt.Println(i, container.Get("image").String(), container.Get("imagePullPolicy").Exists())
	}
	fmt.Println(r.Object.Get("spec", "containers", "1").JSON())
	// Output:
	// web
	// 0 nginx:1.29 false
	// 1 log:2 false
	// {"name":"log","image":"log:2"}
}

func ExampleValue_Set() {
	var o codec.Object
	o.Reset([]byte(`{"metadata":{},"spec":{"containers":[{"name":"nginx"}]}}`))
	o.SetString("ann", "metadata", "annotations", "example.com/owner")
	for _, container := range o.Get("spec", "containers").Elements() {
		container.SetString("Always", "imagePullPolicy")
	}
	o.Append(`{"operator":"Exists"}`, "spec", "tolerations")
	fmt.Println(o.Get("metadata").JSON())
	fmt.Println(o.Get("spec").JSON())
	for edit := range o.Edits() {
		fmt.Println(edit.Pointer, edit.Before.Exists())
	}
	fmt.Println(o.Err())
	// Output:
	// {"annotations":{"example.com/owner":"ann"}}
	// {"containers":[{"name":"nginx","imagePullPolicy":"Always"}],"tolerations":[{"operator":"Exists"}]}
	// /metadata/annotations false
	// /spec/containers/0/imagePullPolicy false
	// /spec/tolerations false
	// <nil>
}

func ExampleObject_Err() {
	var o codec.Object
	o.Reset([]byte(`{"spec":{"replicas":3}}`))
	o.SetBool(true, "spec", "replicas", "paused") // a number, not an object
	o.SetInt(4, "spec", "replicas")               // too late
	fmt.Println(o.Err())
	fmt.Println(o.Root().JSON())
	// Output:
	// cannot edit "/spec/replicas": neither an object nor an array
	// {"spec":{"replicas":3}}
}

func ExampleResponse() {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode([]byte(exampleBody)); err != nil {
		fmt.Println(err)
		return
	}
	r.Response.Status = codec.Status{Code: 403, Reason: "Forbidden", Message: "images must have a digest"}
	r.Response.Warn("nginx:1.29 has no digest")
	if err := r.Response.Annotate("image", "nginx:1.29"); err != nil {
		fmt.Println(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, r.AppendResponse(nil), "", "  "); err != nil {
		fmt.Println(err)
	}
	fmt.Println(indented.String())
	// Output:
	// {
	//   "kind": "AdmissionReview",
	//   "apiVersion": "admission.k8s.io/v1",
	//   "response": {
	//     "uid": "705ab4f5-6393-11e8",
	//     "allowed": false,
	//     "status": {
	//       "metadata": {},
	//       "status": "Failure",
	//       "message": "images must have a digest",
	//       "reason": "Forbidden",
	//       "code": 403
	//     },
	//     "auditAnnotations": {
	//       "image": "nginx:1.29"
	//     },
	//     "warnings": [
	//       "nginx:1.29 has no digest"
	//     ]
	//   }
	// }
}

func ExampleAppendPath() {
	path, ok := codec.AppendPath(nil, "/metadata/annotations/example.com~1owner")
	fmt.Printf("%q %v\n", path, ok)
	// Output: ["metadata" "annotations" "example.com/owner"] true
}
