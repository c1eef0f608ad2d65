// Command fastadmit is a Kubernetes admission webhook server.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

// version is set by the linker in a release.
var version string

func main() {
	os.Exit(app.Execute(app.NewCommand(app.WithVersion(version))))
}
