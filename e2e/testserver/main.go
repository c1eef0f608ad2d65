// Command testserver is fastadmit with the plugins of tests: those of Kubernetes' own webhook
// conformance tests (k8s.io/kubernetes test/e2e/apimachinery/webhook.go and
// test/images/agnhost/webhook), and one that reports its reviews.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	var options []app.Option
	for _, p := range plugins() {
		options = append(options, app.WithPlugin(p))
	}
	os.Exit(app.Execute(app.NewCommand(options...)))
}
