// Package extendedresourcetoleration is the admission plugin
// ExtendedResourceToleration.
//
// It adds tolerations to pods that request an extended resource, such as example.com/gpu,
// for nodes that are tainted with the name of the resource. Enable it to reserve nodes with
// special hardware for the pods that need it: taint the nodes, and pods need no tolerations
// of their own.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/extendedresourcetoleration.
package extendedresourcetoleration

import (
	"context"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// fewRequests is the number of requests for extended resources up to which the plugin does
// not allocate; containers and init containers count separately. A pod that needs special
// hardware requests one or two kinds of it.
const fewRequests = 8

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "ExtendedResourceToleration",
		Summary: "adds tolerations for the extended resources that a pod requests",
		Rules:   []admission.Rule{admission.CreateUpdate("pods")},
		Mutates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit}, nil
		},
	}
}

// A request is an extended resource that a pod requests.
type request struct {
	resource  string
	tolerated bool
}

func (r request) compare(resource string) int { return strings.Compare(r.resource, resource) }

func admit(_ context.Context, review *codec.Review) admission.Result {
	spec := review.Object.Get("spec")
	var few [fewRequests]request
	// Ephemeral containers cannot request resources.
	requests := appendRequests(few[:0], spec.Get("containers"))
	requests = appendRequests(requests, spec.Get("initContainers"))
	if len(requests) == 0 {
		return admission.Allowed()
	}
	slices.SortFunc(requests, func(a, b request) int { return a.compare(b.resource) })
	requests = slices.Compact(requests)
	for _, has := range spec.Get("tolerations").Elements() {
		update(&review.Object, has, requests)
	}
	for _, r := range requests {
		if !r.tolerated {
			review.Object.Append(toleration(&review.Object, r.resource), "spec", "tolerations")
		}
	}
	return admission.Allowed()
}

// appendRequests appends the extended resources that the containers request, including
// requests of zero.
func appendRequests(dst []request, containers codec.Value) []request {
	for _, container := range containers.Elements() {
		for resource := range container.Get("resources", "requests").Members() {
			if isExtended(resource) {
				dst = append(dst, request{resource: resource})
			}
		}
	}
	return dst
}

// update notes the request that the toleration belongs to, if any. As in-tree, it rewrites
// such a toleration and so removes its tolerationSeconds, which are not allowed with this
// effect.
func update(object *codec.Object, has codec.Value, requests []request) {
	if !has.Get("operator").EqualString("Exists") ||
		!has.Get("effect").EqualString("NoSchedule") ||
		has.Get("value").String() != "" {
		return
	}
	at, ok := slices.BinarySearchFunc(requests, has.Get("key").String(), request.compare)
	if !ok {
		return
	}
	requests[at].tolerated = true
	if seconds := has.Get("tolerationSeconds"); seconds.IsSet() {
		has.Set(toleration(object, requests[at].resource))
	}
}

// toleration returns the toleration for an extended resource as JSON in the object's memory.
// The name of such a resource needs no escaping.
func toleration(object *codec.Object, resource string) string {
	return object.Compose(func(dst []byte) []byte {
		dst = append(dst, `{"key":"`...)
		dst = append(dst, resource...)
		return append(dst, `","operator":"Exists","effect":"NoSchedule"}`...)
	})
}
