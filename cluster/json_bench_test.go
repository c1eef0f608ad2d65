package cluster

import (
	"encoding/json"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/codec"
)

// teamJSON is a custom resource of 1 KiB, as an API server returns it.
const teamJSON = `{"apiVersion":"example.com/v1","kind":"Team",` +
	`"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","note":"kept \"quoted\""},` +
	`"creationTimestamp":"2026-01-02T03:04:05Z","generation":3,"labels":{"a":"b"},"managedFields":[{"manager":"kubectl",` +
	`"operation":"Update","apiVersion":"example.com/v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:spec":{"f:owner":{}}}}],` +
	`"name":"red","namespace":"one","resourceVersion":"42","uid":"1-2"},` +
	`"spec":{"owner":"ann","quota":{"cpu":"4","memory":"8Gi"},"members":[{"name":"ann","role":"lead"},{"name":"bob",` +
	`"role":"member"},{"name":"cid","role":"member"}],"env":{"TEAM":"red","STAGE":"prod"}},"status":{"ready":true,` +
	`"conditions":[{"type":"Ready","status":"True"}]}}`

// BenchmarkJSON compares the ways to read two fields of a cached object.
func BenchmarkJSON(b *testing.B) {
	j, err := NewJSON([]byte(teamJSON))
	if err != nil {
		b.Fatal(err)
	}
	read := func(v codec.Value) bool {
		return v.Get("spec", "owner").String() == "ann" && v.Get("spec", "env", "TEAM").String() == "red"
	}
	way := func(name string, f func() bool) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if !f() {
						b.Error("it was read wrong")
					}
				}
			})
		})
	}
	way("own Object", func() bool { return read(j.Value()) })
	pool := sync.Pool{New: func() any { return new(codec.Object) }}
	way("pooled Object", func() bool {
		o := pool.Get().(*codec.Object)
		defer pool.Put(o)
		return read(j.Read(o))
	})
	way("decoded for each call", func() bool {
		var team struct {
			Spec struct {
				Owner string
				Env   map[string]string
			}
		}
		return json.Unmarshal(j.text, &team) == nil && team.Spec.Owner == "ann" && team.Spec.Env["TEAM"] == "red"
	})
	var tree map[string]any
	if err := json.Unmarshal(j.text, &tree); err != nil {
		b.Fatal(err)
	}
	way("decoded once, as unstructured", func() bool {
		owner, _, _ := unstructured.NestedString(tree, "spec", "owner")
		team, _, _ := unstructured.NestedString(tree, "spec", "env", "TEAM")
		return owner == "ann" && team == "red"
	})
	way("a lock around one Object", func() func() bool {
		var mu sync.Mutex
		v := j.Value()
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return read(v)
		}
	}())
}
