package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// plugins returns what package typed does with Go types, written as plugins:
// what is not in the table of fastadmit.
func plugins() []handlers.Plugin {
	mutating := func(name, summary string, admit func(*codec.Object)) handlers.Plugin {
		return handlers.Plugin{
			Name: name, Summary: summary, Rules: []handlers.Rule{handlers.CreateUpdate("pods")}, Mutates: true, Own: true,
			New: func(handlers.Setup) (handlers.Handler, error) {
				return handlers.Handler{Admit: func(_ context.Context, review *codec.Review) handlers.Result {
					admit(&review.Object)
					return handlers.Allowed()
				}}, nil
			},
		}
	}
	return []handlers.Plugin{
		{
			Name: "PrivilegedContainers", Summary: "denies privileged containers",
			Rules: []handlers.Rule{handlers.CreateUpdate("pods")}, Validates: true, Own: true,
			New: func(handlers.Setup) (handlers.Handler, error) { return handlers.Handler{Validate: privileged}, nil },
		},
		mutating("SeccompProfile", "gives pods the seccomp profile of the runtime", seccompProfile),
		mutating("ServiceAccountToken", "keeps tokens out of pods", serviceAccountToken),
		mutating("NodeSystem", "puts pods on nodes with Linux", nodeSystem),
		mutating("CostCenter", "labels pods with a cost center", costCenter),
		mutating("RegistryMirror", "takes images of docker.io from a mirror", registryMirror),
		mutating("PrivilegeEscalation", "keeps processes from getting more privileges", privilegeEscalation),
		mutating("GracePeriod", "bounds the time that pods take to end", gracePeriod),
	}
}

func privileged(_ context.Context, review *codec.Review) handlers.Result {
	for c := range handlers.Containers(review.Object.Get("spec")) {
		if c.Get("securityContext", "privileged").Bool() {
			return handlers.Denied(handlers.Forbidden(review, fmt.Errorf("%s is privileged", c.Path())))
		}
	}
	return handlers.Allowed()
}

func seccompProfile(pod *codec.Object) {
	if !pod.Get("spec", "securityContext", "seccompProfile").IsSet() {
		pod.EnsureObject("spec", "securityContext")
		pod.Set(`{"type":"RuntimeDefault"}`, "spec", "securityContext", "seccompProfile")
	}
}

func serviceAccountToken(pod *codec.Object) {
	if !pod.Get("spec", "automountServiceAccountToken").IsSet() {
		pod.Set("false", "spec", "automountServiceAccountToken")
	}
}

func nodeSystem(pod *codec.Object) {
	if !pod.Get("spec", "nodeSelector", "kubernetes.io/os").IsSet() {
		pod.EnsureObject("spec", "nodeSelector")
		pod.Set(`"linux"`, "spec", "nodeSelector", "kubernetes.io/os")
	}
}

func costCenter(pod *codec.Object) {
	if !pod.Get("metadata", "labels", "cost-center").IsSet() {
		pod.EnsureObject("metadata", "labels")
		pod.Set(`"unknown"`, "metadata", "labels", "cost-center")
	}
}

// registryMirror works on the JSON text of the name, so there is nothing to
// escape.
func registryMirror(pod *codec.Object) {
	for c := range handlers.Containers(pod.Get("spec")) {
		if image, found := strings.CutPrefix(c.Get("image").JSON(), `"docker.io/`); found {
			mirrored := pod.Compose(func(dst []byte) []byte { return append(append(dst, `"mirror.example.com/`...), image...) })
			pod.Set(mirrored, "spec", c.List, codec.Index(c.Index), "image")
		}
	}
}

func privilegeEscalation(pod *codec.Object) {
	for c := range handlers.Containers(pod.Get("spec")) {
		if !c.Get("securityContext", "allowPrivilegeEscalation").IsSet() {
			pod.EnsureObject("spec", c.List, codec.Index(c.Index), "securityContext")
			pod.Set("false", "spec", c.List, codec.Index(c.Index), "securityContext", "allowPrivilegeEscalation")
		}
	}
}

func gracePeriod(pod *codec.Object) {
	const secondsMax = 300
	if seconds, ok := pod.Get("spec", "terminationGracePeriodSeconds").Int64(); ok && seconds > secondsMax {
		pod.Set("300", "spec", "terminationGracePeriodSeconds")
	}
}
