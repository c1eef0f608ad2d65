package resourcequota

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// TestDemandsOwnTheirMemory checks that a demand has no views of the review: another
// goroutine charges it, perhaps after the call has ended.
func TestDemandsOwnTheirMemory(t *testing.T) {
	state, err := cluster.New(cluster.Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	view := state.View(Plugin().Needs...)
	p := &plugin{devices: &devices{classes: cluster.DeviceClasses.In(view), claims: cluster.ResourceClaims.In(view),
		pods: cluster.Pods.In(view)}}
	f := func(resource, object string) {
		t.Helper()
		admissiontest.CheckOwned(t, admissiontest.UpdateBody(resource, object, object), func(review *codec.Review) any {
			e := p.evaluator(review.Resource())
			if _, ok := e.(objects); ok {
				e = objectsOf(review.Resource())
			}
			d, err := newDemand(t.Context(), review, e, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d.old == nil || len(d.used) == 0 {
				t.Errorf("got %+v, want two objects that use something", d)
			}
			d.evaluator = nil // the evaluator belongs to the plugin
			return d
		})
	}
	const metadata = `"metadata":{"name":"n","resourceVersion":"1"}`
	f("v1/pods", `{`+metadata+`,"spec":{"priorityClassName":"high","overhead":{"cpu":"1m"},"resources":{"requests":{"memory":"1Gi"}},
		"containers":[{"name":"c","resources":{"requests":{"cpu":"1","example.com/gpu":"1"},"limits":{"example.com/gpu":"1"}}}],
		"initContainers":[{"name":"i","restartPolicy":"Always","resources":{"requests":{"hugepages-2Mi":"2Mi"}}}]},
		"status":{"phase":"Running","qosClass":"Burstable","conditions":[{"type":"PodResizePending","reason":"Infeasible"}],
		"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"2"},"resources":{"requests":{"cpu":"2"}}}],
		"initContainerStatuses":[{"name":"i","resources":{"limits":{"cpu":"2"}}}]}}`)
	f("v1/persistentvolumeclaims", `{`+metadata+`,"spec":{"storageClassName":"fast","volumeAttributesClassName":"gold",
		"resources":{"requests":{"storage":"1Gi"}}},"status":{"currentVolumeAttributesClassName":"silver",
		"modifyVolumeStatus":{"targetVolumeAttributesClassName":"iron"},"allocatedResources":{"storage":"2Gi"}}}`)
	f("v1/services", `{`+metadata+`,"spec":{"type":"NodePort","ports":[{"nodePort":30000}]}}`)
	f("v1/configmaps", `{`+metadata+`}`)
	f("example.com/v1/widgets", `{`+metadata+`}`)
	f("resource.k8s.io/v1/resourceclaims", `{`+metadata+`,"spec":{"devices":{"requests":[
		{"name":"a","exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}},
		{"name":"b","firstAvailable":[{"deviceClassName":"fpga","allocationMode":"ExactCount","count":1}]}]}}}`)
}

// TestWorkOutlivesItsCall ends the call that started the work for a namespace, and
// overwrites its body, while a quota is being written.
func TestWorkOutlivesItsCall(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "9"), resources("pods", "0")))
	writing, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
		once.Do(func() { close(writing); <-goOn })
		return nil
	}
	state := a.state()
	chainIn(t, state) // starts the watches of the plugin
	l := newLedger(cluster.ResourceQuotas.In(state.View(Plugin().Needs...)))
	admissiontest.CheckOwned(t, admissiontest.Body(codec.Create, "v1/pods", podBody), func(review *codec.Review) any {
		d, err := newDemand(t.Context(), review, pods{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-writing; cancel() }()
		if err := l.charge(ctx, review.Namespace(), d); err == nil {
			t.Error("the call was answered before the quota was written")
		}
		var keys []string
		l.mu.Lock()
		defer l.mu.Unlock()
		for namespace := range l.waiting {
			keys = append(keys, namespace)
		}
		if len(keys) != 1 {
			t.Errorf("got %q, want the namespace that is worked for", keys)
		}
		return keys
	})
	close(goOn)
	for deadline := time.Now().Add(5 * time.Minute); !l.isIdle(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("work did not end within a minute, although no charge waits")
		}
	}
}

// isIdle reports whether no work runs for any namespace.
func (l *ledger) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0
}
