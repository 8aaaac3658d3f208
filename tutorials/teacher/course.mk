# The Makefile's target for teachers.

## make course     a course of the lessons in tutorials/: OUT/student and OUT/teacher (OUT=dir SEED=n: a variant)
.PHONY: course
course: export OUT := $(OUT)
course: all
	$(if $(OUT),,$(error make course: OUT=dir is missing))
	$(if $(findstring $$,$(value OUT)),$(error OUT cannot have a $$: make would replace it and what follows))
	$(Q)mkdir -p -- "$$OUT"
	$(Q)./$(ORRERY) course --student "$$OUT/student" --teacher "$$OUT/teacher" --variant $(or $(SEED),0)
	$(Q)bash tutorials/teacher/student_tree.sh "$$OUT/student" ./$(ORRERY)
	$(Q)bash tutorials/teacher/kit.sh "$$OUT" $(or $(SEED),0)
	@printf '  COURSE %s %s\n' "$$OUT/student" "$$OUT/teacher"

## make slides     the concept pages as slides, a file of HTML each, without network (OUT=dir)
.PHONY: slides
slides: export OUT := $(OUT)
slides:
	$(if $(OUT),,$(error make slides: OUT=dir is missing))
	$(if $(findstring $$,$(value OUT)),$(error OUT cannot have a $$: make would replace it and what follows))
	$(Q)bash docs/site/slides.sh "$$OUT"
	@printf '  SLIDES %s/index.html\n' "$$OUT"
