# Compiles handler/*.cc and links the plugin. Used by scripts/build_plugin.sh, which has
# already configured the server's source and built the Rust library.
#
# RRD_OUT is where the plugin and its objects go, RRD_FLAGS are added to what compiles and links them: see tests/sanitize.
#
# The flags that shape structures must be the server's own (debug off, wsrep from my_config.h),
# else plugin and server disagree about where a member lies.
include build/env

RRD_OUT ?= build
objects := $(patsubst handler/%.cc,$(RRD_OUT)/handler/%.o,$(wildcard handler/*.cc))
$(if $(objects),,$(error handler/ has no .cc file))
library := build/cargo/$(RRD_PROFILE)/librrd_ffi.a
headers := $(RRD_SOURCE)/include $(RRD_SOURCE)/sql $(RRD_SOURCE)/wsrep-lib/include \
	$(RRD_SOURCE)/wsrep-lib/wsrep-API/v26 $(RRD_SOURCE_BUILD)/include $(RRD_SOURCE_BUILD)/sql

# The server's headers are not ours to mend: -isystem keeps our warnings off them.
CXXFLAGS := -std=gnu++17 -O2 -g -fPIC -fno-omit-frame-pointer \
	-fstack-protector -D_FORTIFY_SOURCE=2 -DNDEBUG -DDBUG_OFF -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN \
	-Wall -Wextra -Werror -Ihandler -Icrates/ffi/include $(addprefix -isystem ,$(headers)) $(RRD_FLAGS)

# Only what the server looks up by name is exported (see plugin.map). nodelete: a thread of the
# Rust library may still be in its last instructions when the server unloads the plugin.
LDFLAGS := -shared -Wl,--version-script=scripts/plugin.map -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now $(RRD_FLAGS)

$(RRD_OUT)/plugin/ha_rrd.so: $(objects) $(library) $(RRD_SERVICES) scripts/plugin.mk scripts/plugin.map
	@mkdir -p $(@D)
	@echo "linking $@"
	@# Linked aside and renamed: a running server has the old file mapped.
	$(CXX) $(LDFLAGS) -o $@.new $(objects) $(library) $(RRD_SERVICES) -lpthread -ldl -lm
	mv $@.new $@

# The server's headers take most of the time to compile: once for all files.
precompiled := $(RRD_OUT)/handler/server.h

$(precompiled).gch: handler/server.h scripts/plugin.mk build/env
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -x c++-header -o $@ $<

$(RRD_OUT)/handler/%.o: handler/%.cc $(precompiled).gch scripts/plugin.mk build/env
	@echo "compiling $<"
	$(CXX) $(CXXFLAGS) -include $(precompiled) -MMD -MP -c -o $@ $<

-include $(objects:.o=.d)
