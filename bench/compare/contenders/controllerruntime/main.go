// Command controllerruntime uses sigs.k8s.io/controller-runtime as its users do: its webhook, a
// decoder for the Pod, and PatchResponseFromRaw.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/bench/compare/policies"
	"github.com/fastadmit/fastadmit/bench/compare/serving"
	"github.com/fastadmit/fastadmit/bench/compare/typed"
)

func main() {
	ctrllog.SetLogger(logr.Discard())
	o := serving.Flags()
	mutators, err := typed.Mutators(o.Scenario)
	if err != nil {
		log.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	decoder := admission.NewDecoder(scheme)
	handle := func(request admission.Request) admission.Response { return review(decoder, request, mutators) }
	if o.Scenario == "policy" {
		policy, err := policies.New()
		if err != nil {
			log.Fatal(err)
		}
		handle = func(request admission.Request) admission.Response { return evaluate(decoder, request, policy) }
	}
	hook := &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		return handle(request)
	})}
	// Its own server cannot listen on a port that the system chooses. This is the handler that it
	// would serve, with metrics.
	handler, err := admission.StandaloneWebhook(hook, admission.StandaloneOptions{MetricsPath: "/"})
	if err != nil {
		log.Fatal(err)
	}
	o.HTTP(handler)
}

// evaluate implements the scenario "policy": it decodes the Pod and converts it to maps for cel-go,
// as kube-apiserver does.
func evaluate(decoder admission.Decoder, request admission.Request, policy policies.Policy) admission.Response {
	var pod corev1.Pod
	if err := decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if err := policy.Check(object); err != nil {
		return admission.Denied(err.Error())
	}
	return admission.Allowed("")
}

func review(decoder admission.Decoder, request admission.Request, mutators []typed.Mutator) admission.Response {
	var pod corev1.Pod
	if err := decoder.Decode(request, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if mutators == nil {
		if err := typed.ValidatePrivileged(&pod); err != nil {
			return admission.Denied(err.Error())
		}
		return admission.Allowed("")
	}
	var old *corev1.Pod
	if request.Operation == admissionv1.Update {
		old = new(corev1.Pod)
		if err := decoder.DecodeRaw(request.OldObject, old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	for _, mutate := range mutators {
		if err := mutate(&pod, old); err != nil {
			return admission.Denied(err.Error())
		}
	}
	mutated, err := json.Marshal(&pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, mutated)
}
