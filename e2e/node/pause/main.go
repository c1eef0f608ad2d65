// Command pause holds the namespaces of a pod, as the image pause of Kubernetes
// does, or is a container that does nothing.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
}
