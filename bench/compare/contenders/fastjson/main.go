// Command fastjson combines fast libraries in a straightforward way: fasthttp, fastjson for the
// whole review, and a patch that jsondiff finds between two documents.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
	"github.com/wI2L/jsondiff"

	"github.com/fastadmit/fastadmit/bench/compare/serving"
	"github.com/fastadmit/fastadmit/bench/compare/typed"
)

var (
	parsers fastjson.ParserPool
	cluster *inCluster // of the scenario "ten"
)

func main() {
	o := serving.Flags()
	known, err := typed.NewCluster()
	if err != nil {
		log.Fatal(err)
	}
	cluster = &inCluster{known}
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			answer, err := review(ctx.PostBody(), o.Scenario)
			if err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadRequest)
				return
			}
			ctx.SetContentType("application/json")
			ctx.SetBody(answer)
		},
		MaxRequestBodySize: 32 << 20,
	}
	log.Fatal(server.Serve(tls.NewListener(serving.Listen(), o.TLS())))
}

// A response is the response in an AdmissionReview.
type response struct {
	UID       string          `json:"uid"`
	Allowed   bool            `json:"allowed"`
	Status    json.RawMessage `json:"status,omitempty"`
	Patch     []byte          `json:"patch,omitempty"`
	PatchType string          `json:"patchType,omitempty"`
}

func review(body []byte, scenario string) ([]byte, error) {
	parser := parsers.Get()
	defer parsers.Put(parser)
	document, err := parser.ParseBytes(body)
	if err != nil {
		return nil, err
	}
	request := document.Get("request")
	answer := response{UID: string(request.GetStringBytes("uid")), Allowed: true}
	if pod := request.Get("object"); scenario == "validate" {
		if privileged(pod) {
			answer.Allowed, answer.Status = false, json.RawMessage(`{"code":403,"message":"a container is privileged"}`)
		}
	} else if err := mutate(scenario, pod, request, &answer); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"kind": "AdmissionReview", "apiVersion": string(document.GetStringBytes("apiVersion")), "response": answer,
	})
}

func mutate(scenario string, pod, request *fastjson.Value, answer *response) error {
	before := pod.MarshalTo(nil)
	isUpdate := string(request.GetStringBytes("operation")) == "UPDATE"
	if !isUpdate || hasNewImage(pod, request.Get("oldObject")) {
		alwaysPullImages(pod)
	}
	if scenario == "ten" {
		if err := cluster.mutate(pod); err != nil {
			answer.Allowed, answer.Status = false, json.RawMessage(fmt.Sprintf(`{"code":403,"message":%q}`, err))
			return nil
		}
	}
	operations, err := jsondiff.CompareJSON(before, pod.MarshalTo(nil))
	if err != nil || len(operations) == 0 {
		return err
	}
	answer.PatchType = "JSONPatch"
	answer.Patch, err = json.Marshal(operations)
	return err
}

// containers returns all containers of a Pod.
func containers(pod *fastjson.Value) []*fastjson.Value {
	var all []*fastjson.Value
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		all = append(all, pod.GetArray("spec", list)...)
	}
	return all
}

func privileged(pod *fastjson.Value) bool {
	for _, c := range containers(pod) {
		if c.GetBool("securityContext", "privileged") {
			return true
		}
	}
	return false
}

func hasNewImage(pod, old *fastjson.Value) bool {
	known := make(map[string]bool)
	for _, c := range containers(old) {
		known[string(c.GetStringBytes("image"))] = true
	}
	for _, c := range containers(pod) {
		if !known[string(c.GetStringBytes("image"))] {
			return true
		}
	}
	return false
}

func alwaysPullImages(pod *fastjson.Value) {
	for _, c := range containers(pod) {
		c.Set("imagePullPolicy", fastjson.MustParse(`"Always"`))
	}
	for _, volume := range pod.GetArray("spec", "volumes") {
		if image := volume.Get("image"); image != nil {
			image.Set("pullPolicy", fastjson.MustParse(`"Always"`))
		}
	}
}
